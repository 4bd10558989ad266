"""Backfill: messages of time windows as files or tables, each message once."""
