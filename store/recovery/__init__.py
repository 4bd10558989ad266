"""Recovery on open: what a crash left is examined, cut back to whole records, and dispatched again."""
