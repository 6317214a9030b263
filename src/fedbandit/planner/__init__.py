"""Choosing a plan: what a protocol is predicted to cost, the best one, and how they all compare when simulated."""
