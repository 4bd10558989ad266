"""Batch reads: schema, filters, planning of partitions, and what a task does."""
