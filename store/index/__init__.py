"""IndexFiles: keys and times of messages, read and written."""
