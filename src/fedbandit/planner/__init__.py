"""Choosing a plan: every protocol by name, and which of them to use."""
