"""How it looks: one colour per protocol, and the files that browsers get."""
