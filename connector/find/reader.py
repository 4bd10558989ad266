"""Batch reader of look-ups: messages are found on the driver, and read by the tasks; one row per message."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from segmentlog.query.position import AtTime, Position
from segmentlog.query.source import StoreSource
from segmentlog.store import ScanSpec, StoreReader
from segmentlog.store.find import Finder, Found, Window

from ..errors import in_spark_words
from ..options.read_options import Lookup, ReadOptions
from ..read.planning import open_stores, select_queues, worker_source
from ..read.schema import check_schema, project
from ..read.task import scan_spec
from ..setup.worker_tuning import SentToWorkers

logger = logging.getLogger(__name__)

_RECORDS_MAX = 1 << 16
_PLACE = ScanSpec(columns=("topic", "storeTimestamp"))


@dataclass(frozen=True, kw_only=True)
class FoundRecords(InputPartition):
    """One Spark task: some records of one store."""

    source: StoreSource
    physical_offsets: bytes  # (n,) int64, native byte order
    spec: ScanSpec


class LookupReader(SentToWorkers, DataSourceReader):
    """Reads the messages that were looked up."""

    def __init__(self, options: ReadOptions, lookup: Lookup, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._lookup = lookup
        self._projection = project(schema, options)

    @property
    def target(self) -> pa.Schema:
        """The schema of the batches, which is Spark's own."""
        return self._projection.target

    @in_spark_words()
    def partitions(self) -> list[InputPartition]:
        """Look the messages up, and share them out; no partition where nothing was found."""
        options, planned = self._options, list[InputPartition]()
        spec = scan_spec(options, self._projection)
        for store, queues in select_queues(open_stores(options), options):
            offsets = self._find(store, sorted({bounds.key.topic for bounds in queues}))
            most = options.max_records_per_partition or _RECORDS_MAX
            parts = max(-(-offsets.size // most), min(options.min_partitions or 1, offsets.size))
            planned += [
                FoundRecords(source=worker_source(store, options), physical_offsets=part.tobytes(), spec=spec)
                for part in np.array_split(offsets, max(parts, 1))
                if part.size
            ]
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records. Spark makes up a partition without any when nothing was found."""
        if not isinstance(partition, FoundRecords):
            return
        with in_spark_words():
            store = partition.source.open()
            offsets = np.frombuffer(partition.physical_offsets, np.int64)
            for batch in Finder(store).read(offsets, partition.spec):
                yield self._projection.convert(batch)

    def _find(self, store: StoreReader, topics: list[str]) -> npt.NDArray[np.int64]:
        """(n,) physical offsets of what one store has, ascending."""
        window = Window(_time_of(self._options.start), _time_of(self._options.stop))
        finder = Finder(store)
        if self._lookup.field is None:
            return _within(finder.by_message_ids(self._lookup.texts), topics, window)
        found = finder.by_keys(topics, self._lookup.texts, self._lookup.field, window=window)
        if found.coverage is not None and found.coverage.scanned_bytes > found.coverage.indexed_bytes:
            logger.warning(
                "%s: %d bytes of CommitLog were scanned to look up keys, since no index answers for them: %s",
                store.path,
                found.coverage.scanned_bytes,
                max(found.coverage.scanned(), key=len).reason,
            )
        return np.unique(found.physical_offset)


def _time_of(position: Position) -> int | None:
    return position.ms if isinstance(position, AtTime) else None


def _within(found: Found, topics: list[str], window: Window) -> npt.NDArray[np.int64]:
    """Places of records that are of some topics and were stored in time."""
    table = found.to_table(_PLACE)
    millis = pc.divide(table["storeTimestamp"].cast(pa.int64()), 1000).to_numpy()
    of_topics = pc.is_in(table["topic"], pa.array(topics, pa.string())).to_numpy()
    places: npt.NDArray[np.int64] = found.physical_offset[of_topics & window.holds(millis)]
    return places
