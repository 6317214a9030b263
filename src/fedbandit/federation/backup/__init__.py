"""A party in one file: saved while it runs, and restored such that nothing is done a second time."""
