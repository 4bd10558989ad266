"""The Python API without Spark: what ``segmentlog.open`` returns. Its names are on ``segmentlog`` itself."""

# First, while few calls are on the stack: at the end of a chunk of it CPython gets and returns one with each call,
# which made the import of numpy 20 ms longer.
import pyarrow as pa  # noqa: F401 - see above
