"""How fast this machine is: the engine against the reference, and a live federation against an empty endpoint."""
