"""Decisions: what a silo chooses among, who is served by what, the ids that rewards come back with."""
