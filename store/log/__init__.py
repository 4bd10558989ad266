"""CommitLog: segments read by memory map, records appended with `pwrite`, and the visibility of batches in flight."""
