"""The command line. Results go to standard output, everything else to standard error."""
