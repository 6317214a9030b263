"""The planner: what a consortium asks, what it is told, and the same federation played while somebody looks."""
