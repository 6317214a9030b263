"""Attempts to break what is promised: the auditor, the worlds that it compares, and attacks as worked examples."""
