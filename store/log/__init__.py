"""CommitLog: segments read by memory map, records appended with `pwrite`, and what of a batch in flight is visible."""
