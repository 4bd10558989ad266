"""Look-ups for a DataFrame of keys: each task looks its share of the keys up, and reads what it finds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from segmentlog.query.suggestions import listing, suggest
from segmentlog.store import NATIVE_SCHEMA, ConfigError, ScanSpec, StoreReader
from segmentlog.store.find import ASKED, Finder, KeyField

from ..errors import SchemaError, in_spark_words
from ..options.matching import local_path
from ..read.schema import NATIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAIR: Final = ("topic", "key")


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
            StoreReader.open(each)  # a wrong path should fail here, not in a task
    wanted = frame.select(*_PAIR).dropna().distinct()
    columns = [StructField(name, kind) for name, kind in NATIVE.items()]
    schema = StructType([*columns, StructField(ASKED, StringType())])
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
                found = Finder(StoreReader.open(path)).by_pairs(pairs[0], pairs[1], field)
                yield from found.batches(ScanSpec(columns=tuple(NATIVE_SCHEMA.names)))

    return find
