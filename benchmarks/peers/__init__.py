"""Peers of the segmentlog source. Each module offers ``cases(bench)``, a context manager."""
