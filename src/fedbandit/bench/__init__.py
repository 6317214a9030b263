"""Benchmarks on this machine: the engine against the reference, and a live federation against an empty endpoint."""
