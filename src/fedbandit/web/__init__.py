"""Pages to look at: the planner, where a party stands, and reports; no build step, nothing from another host."""
