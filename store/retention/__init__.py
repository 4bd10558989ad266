"""Retention: expired CommitLog segments, and the ConsumeQueue and index files below the log's start, are deleted."""
