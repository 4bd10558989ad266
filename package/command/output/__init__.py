"""Output of verbs: rows in any format, and reports."""
