"""DataFrames about stores: topics, queues, consumer groups, lag, and its listener and metrics."""
