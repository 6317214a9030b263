"""Web pages: the planner, where a party stands, and reports. They need no build step and nothing from another host."""
