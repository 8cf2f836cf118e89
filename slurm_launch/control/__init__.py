"""Actions on existing runs: cancel, resubmit, grow, attach, dashboard tunnel, node logs. Never prints."""
