"""What the segmentlog source is measured beside. Each module offers ``cases(bench)``, a context manager."""
