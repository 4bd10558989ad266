"""One open store: append, group commit, exactly-once batch commit, staging, and housekeeping."""
