"""A whole federation on one machine: real processes, real HTTP, and the users that the simulator plays."""
