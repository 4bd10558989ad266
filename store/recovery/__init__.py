"""Recovery on open: the log is examined, cut back to whole records, and dispatched again."""
