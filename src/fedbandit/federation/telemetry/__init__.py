"""What a party says of itself while it works: lines of a log, traces, and what is wrong with it, by kind."""
