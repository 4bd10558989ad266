"""Options: their tables, parsing, and typed handles; nothing here starts Spark."""
