"""The stream source: planning of micro-batches, offsets, admission control."""
