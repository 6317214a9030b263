"""Trying to break what is promised: the auditor, the worlds it compares, and attacks as worked examples."""
