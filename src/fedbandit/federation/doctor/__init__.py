"""`fedbandit doctor`: everything about a party that can be looked at from its directory, and what to do about it."""
