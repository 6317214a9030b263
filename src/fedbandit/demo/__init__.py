"""A whole federation on one machine: real processes, real HTTP, and the simulator's users."""
