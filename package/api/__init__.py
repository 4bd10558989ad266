"""The Python API without Spark: what ``segmentlog.open`` returns. Its names are on ``segmentlog`` itself."""

# First, where few calls are on the stack: deep below, at the end of one of its chunks of memory for calls, CPython gets
# and returns a chunk with each call, and that made the import of numpy 20 ms longer.
import pyarrow as pa  # noqa: F401 - see above
