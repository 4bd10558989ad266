"""SystemRows: delayed messages, dead letters, transactions or traces of a store, read when a method asks for them.

::

    Store.trace(…) ──► SystemRows ── to_batches() ──► batches of SCHEMAS["trace"], in bounded memory
"""

from collections.abc import Generator

import pyarrow as pa

from segmentlog.query.frames import system_batches
from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.source import StoreSource
from segmentlog.query.system_frames import SystemWindow

from .arguments import in_api_words
from .rows import Rows


class SystemRows(Rows):
    """Messages that RocketMQ keeps in its own topics, as rows. Immutable and safe in any number of threads.

    Every method reads the store, and reads it again at the next call.

    Parameters
    ----------
    source
        The store.
    kind
        A name of `query.frames`, such as ``"delayed"``.
    window
        Which rows.
    """

    def __init__(self, source: StoreSource, kind: str, window: SystemWindow) -> None:
        self._source = source
        self._kind = kind
        self._window = window

    def __repr__(self) -> str:
        return f"<SystemRows {self._kind} of {self._source.path}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns, those of the Spark frame ``metadata=KIND``."""
        return SCHEMAS[self._kind]

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows as a stream of batches; none of them is empty. To stop early, close the generator."""
        with in_api_words():
            yield from system_batches(self._kind, self._source.open(), self._window)
