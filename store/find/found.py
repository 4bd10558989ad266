"""Result of a look-up: which records, asked by what, and how complete the search was.

::

    Found   hits       (physical offset, asked)  (physical offset, asked)  …     in log order, oldest or newest first
              │ batches()
              ▼
            RecordBatch   native columns …, asked

Only the places of the records are held. Rows are decoded when they are asked for, so that a million hits with large
bodies need no more memory than a batch.
"""

from collections.abc import Iterator
from enum import Enum

import numpy as np
import pyarrow as pa

from ..format.arrow_buffers import numbers, only_chunk
from ..format.message_decode import select
from ..log.commit_log import CommitLog
from ..read.spec import ScanSpec
from .coverage import Coverage, Hits
from .fetch import fetch

ASKED = "asked"
"""The column that states what a row was found by."""


class Order(Enum):
    """The order of the rows of a result: that of the log."""

    OLDEST_FIRST = "oldest-first"
    NEWEST_FIRST = "newest-first"


class Found:
    """Records that a look-up found. Not thread-safe; refers to the store that was asked.

    Parameters
    ----------
    log, broker_name
        Where the records are.
    asked
        What was asked for, k rows, topics as a dictionary; the last column is what rows of the result state as
        ``asked``.
    hits
        What was found, by physical offset.
    coverage
        How the log was searched; None for look-ups that need no search, since they name the place.
    """

    def __init__(  # noqa: PLR0917 - one place makes them
        self, log: CommitLog, broker_name: str, asked: pa.Table, hits: Hits, coverage: Coverage | None, order: Order
    ) -> None:
        backwards = order is Order.NEWEST_FIRST
        self._log = log
        self._broker_name = broker_name
        self._hits = hits
        self._order = order
        self.asked = asked
        self.coverage = coverage
        self._column = only_chunk(asked.column(asked.num_columns - 1))
        self.physical_offset = hits.physical_offset[::-1] if backwards else hits.physical_offset
        """(n,) int64, where each record is."""
        self.asked_index = hits.asked[::-1] if backwards else hits.asked
        """(n,) int64, which of ``asked`` found it."""

    def __len__(self) -> int:
        return self.physical_offset.size

    def apart(self) -> "Found":
        """Return the same result with a view of the log of its own, so that another thread may use the finder."""
        return Found(self._log.again(), self._broker_name, self.asked, self._hits, self.coverage, self._order)

    def missing(self) -> pa.Table:
        """Rows of ``asked`` that found nothing."""
        without = np.ones(self.asked.num_rows, np.bool_)
        without[self.asked_index] = False
        rows = self.asked.take(numbers(np.flatnonzero(without)))
        return rows.cast(pa.schema([(field.name, _plain(field.type)) for field in rows.schema]))

    def schema(self, spec: ScanSpec) -> pa.Schema:
        """The columns of ``spec``, then ``asked``."""
        return select(spec.columns, spec.property_columns).append(pa.field(ASKED, self._column.type))

    def batches(self, spec: ScanSpec) -> Iterator[pa.RecordBatch]:
        """Decode the rows.

        Parameters
        ----------
        spec
            Columns, size of batches, and what becomes of damaged records. Its predicate is not applied.

        Yields
        ------
        RecordBatch
            Of `schema`.

        Raises
        ------
        CorruptRecordError
            At the first damaged record, if ``spec.on_corrupt`` is ``FAIL``.
        DataLossError
            If retention deleted records since they were found, and ``spec.on_loss`` is ``FAIL``.
        """
        schema = self.schema(spec)
        for rows, batch in fetch(self._log, self.physical_offset, spec, self._broker_name):
            asked = self._column.take(numbers(self.asked_index[rows]))
            yield pa.RecordBatch.from_arrays([*batch.columns, asked], schema=schema)

    def to_table(self, spec: ScanSpec) -> pa.Table:
        """All rows at once; see `batches`."""
        return pa.Table.from_batches(self.batches(spec), self.schema(spec))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind
