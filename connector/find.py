"""Look-ups as DataFrames: found on the driver and read by tasks, or for a DataFrame of keys in the tasks alone."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from segmentlog.query.extras import check_tasks_run_functions
from segmentlog.query.position import AtTime, Position
from segmentlog.query.source import StoreSource
from segmentlog.query.suggestions import listing, suggest
from segmentlog.store import NATIVE_SCHEMA, ConfigError, ScanSpec, Snapshot
from segmentlog.store.find import ASKED, Finder, Found, KeyField, Window

from .errors import SchemaError, in_spark_words
from .options.option import local_path
from .options.read_options import Lookup, ReadOptions
from .read import NATIVE, ProjectingReader, open_stores, scan_spec, select_queues, worker_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_RECORDS_MAX = 1 << 16
_PLACE = ScanSpec(columns=("topic", "storeTimestamp"))
_PAIR: Final = ("topic", "key")


@dataclass(frozen=True, kw_only=True)
class FoundRecords(InputPartition):
    """One Spark task: some records of one store."""

    source: StoreSource
    physical_offsets: bytes  # (n,) int64, native byte order
    spec: ScanSpec


class LookupReader(ProjectingReader, DataSourceReader):
    """Reads the messages that were looked up."""

    def __init__(self, options: ReadOptions, lookup: Lookup, schema: StructType) -> None:
        super().__init__(options, schema)
        self._lookup = lookup

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

    def _find(self, store: Snapshot, topics: list[str]) -> npt.NDArray[np.int64]:
        """(n,) physical offsets of what one store has, ascending."""
        window = Window(_time_of(self._options.start), _time_of(self._options.stop))
        finder = Finder(store)
        if self._lookup.field is None:
            return _within(finder.by_message_ids(self._lookup.texts, argument="messageIds"), topics, window)
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


# A DataFrame of keys


def find_by_keys(
    spark: "SparkSession", path: str | Sequence[str], frame: "DataFrame", *, field: KeyField = KeyField.KEYS
) -> "DataFrame":
    """Find the messages of many keys, in the tasks of Spark.

    Parameters
    ----------
    spark
        The session of ``frame``.
    path
        The store directory, or several, as the workers see them. Column ``brokerName`` of a row names the last part of
        its path.
    frame
        Columns ``topic`` and ``key``, strings; others are ignored. Equal pairs count once, nulls not at all.
    field
        The property that holds the keys.

    Returns
    -------
    DataFrame
        All native columns, and ``asked``: the key that found the row. A message found by several keys is several rows.

    Raises
    ------
    ConfigError
        If the frame belongs to another session, or there is no path.
    SchemaError
        If a column is missing, or is not a string.
    NotAStoreError, UnsupportedStoreError
        If a path holds no store that is supported.
    """
    if frame.sparkSession is not spark:
        raise ConfigError("argument `frame` belongs to another session than `spark`", fix="Give frame.sparkSession")
    _check_columns(dict(frame.dtypes))
    paths = tuple(dict.fromkeys(local_path(each) for each in ([path] if isinstance(path, str) else path)))
    if not paths:
        raise ConfigError("argument `path` names no store", fix="Pass one path or several")
    with in_spark_words():
        for each in paths:
            Snapshot.open(each)  # a wrong path should fail here, not in a task
    wanted = frame.select(*_PAIR).dropna().distinct()
    columns = [StructField(name, kind) for name, kind in NATIVE.items()]
    schema = StructType([*columns, StructField(ASKED, StringType())])
    check_tasks_run_functions()
    return wanted.mapInArrow(_task(paths, field), schema)


def _check_columns(kinds: Mapping[str, str]) -> None:
    """Require the columns of a frame of keys; ``kinds`` are the types of those that it has, by name."""
    for name in _PAIR:
        if name not in kinds:
            near = suggest(name, kinds)
            hint = "" if near is None else f"Rename it: .withColumnRenamed('{near}', '{name}'). "
            raise SchemaError(
                f"column `{name}` of the keys does not exist", fix=f"{hint}The columns are {listing(list(kinds))}"
            )
        if kinds[name] != "string":
            raise SchemaError(
                f"column `{name}` of the keys has the type {kinds[name]}, and a look-up takes strings",
                fix=f"Convert it: .withColumn('{name}', col('{name}').cast('string'))",
            )


def _task(paths: Sequence[str], field: KeyField) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function of a task."""

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = pa.Table.from_batches(batches, pa.schema([(name, pa.string()) for name in _PAIR])).combine_chunks()
        if keys.num_rows:
            pairs = [pa.concat_arrays(keys[name].chunks) for name in _PAIR]
            for path in paths:
                found = Finder(Snapshot.open(path)).by_pairs(pairs[0], pairs[1], field)
                yield from found.batches(ScanSpec(columns=tuple(NATIVE_SCHEMA.names)))

    return find
