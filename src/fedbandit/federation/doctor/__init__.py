"""`fedbandit doctor`: all checks of a party that can be made from its directory, and what to do about failures."""
