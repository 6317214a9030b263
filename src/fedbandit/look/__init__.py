"""What people see: one colour per protocol, and the files that browsers get."""
