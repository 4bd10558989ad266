"""Offline tools: verify, salvage, and rebuild of queues and index."""
