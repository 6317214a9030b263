"""What a running party reports about itself: log lines, traces, and problems by kind."""
