"""The Python API without Spark: what ``segmentlog.open`` returns. Its names are on ``segmentlog`` itself."""
