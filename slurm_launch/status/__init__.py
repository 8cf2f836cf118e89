"""What is known about a run: lookup, report, wait, watch. Never prints."""
