"""Queue entries: where the messages of each queue are, whatever has them: files, the log, a database or an archive."""
