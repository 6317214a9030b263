"""The planner's page: what a consortium asks, what it is told, and a simulation of the same federation."""
