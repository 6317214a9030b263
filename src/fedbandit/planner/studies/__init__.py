"""How protocols compare, epsilon by epsilon and improvement by improvement, and whether predictions come true."""
