"""Stores with an index, and what a look-up has to find in them, by reading every record one after the other."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from segmentlog.store.directory.layout import log_directories
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.index_file import ENTRY, Geometry
from segmentlog.store.format.message import read_record
from segmentlog.store.format.properties import Properties, parse_properties
from segmentlog.store.index.writer import IndexWriter, indexed_keys
from segmentlog.store.log.commit_log import CommitLog

from . import store_builder
from .store_builder import Queues, StoreBuilder

SYS_TRANSACTION = 0xC
SYS_ROLLBACK = 0xC
START_MS = 1_700_000_000_000


class Row(NamedTuple):
    topic: str
    keys: str | None = None
    unique: str | None = None
    time_ms: int = START_MS
    sys_flag: int = 0
    queue_id: int = 0
    body_bytes: int = 8


def build(path: Path, rows: Sequence[Row], *, segment_bytes: int = 1 << 16, queues: Queues = Queues.WRITTEN) -> None:
    geometry = store_builder.Geometry(segment_bytes=segment_bytes, queue_segment_entries=1 << 12)
    with StoreBuilder(path, geometry=geometry, queues=queues) as builder:
        if rows:
            builder.append(
                pa.record_batch(
                    {
                        "topic": pa.array([row.topic for row in rows]),
                        "queueId": pa.array([row.queue_id for row in rows], pa.int32()),
                        "body": pa.array([bytes(row.body_bytes) for row in rows], pa.binary()),
                        "keys": pa.array([row.keys for row in rows], pa.string()),
                        "uniqKey": pa.array([row.unique for row in rows], pa.string()),
                        "sysFlag": pa.array([row.sys_flag for row in rows], pa.int32()),
                        "storeTimestamp": pa.array([row.time_ms for row in rows], pa.int64()),
                    }
                )
            )


def write_index(
    path: Path, geometry: Geometry, *, wanted: Callable[[int], bool] = lambda _: True, stop: int | None = None
) -> list[Path]:
    """Index a store; ``wanted`` says of a physical offset whether its record is, ``stop`` where it ends."""
    fs = LocalWritableFileSystem()
    (path / "index").mkdir()
    index = IndexWriter(fs, str(path / "index"), str(path / "making"), geometry)
    log = CommitLog(LocalFileSystem(), [str(path / "commitlog")])
    for found in log.walk(0, log.stop if stop is None else stop):
        hashes, of = indexed_keys(found.records, Properties(found.records))
        physical = found.segment.base + found.records.positions
        times = found.records.field("store_timestamp")
        kept = np.array([wanted(int(offset)) for offset in physical[of]], np.bool_)
        of, hashes = of[kept], hashes[kept]
        index.put(hashes, physical[of], times[of])
    index.write_slots()
    index.close()
    return sorted((path / "index").iterdir())


class Stored(NamedTuple):
    """Keys, topic and time of one record of a log."""

    physical_offset: int
    topic: str
    keys: frozenset[str]
    unique: str | None
    time_ms: int


def every_record(path: Path) -> list[Stored]:
    fs = LocalFileSystem()
    log = CommitLog(fs, log_directories(str(path), [each.name for each in path.iterdir()]))
    stored: list[Stored] = []
    for found in log.walk(0, log.stop):
        for position in found.records.positions.tolist():
            record = read_record(found.records.buffer.data, position)
            assert record is not None
            if record.sys_flag & SYS_TRANSACTION == SYS_ROLLBACK:
                continue
            properties = parse_properties(bytes(record.properties))
            keys = frozenset(piece for piece in properties.get("KEYS", "").split(" ") if piece)
            topic = bytes(record.topic).decode()
            stored.append(
                Stored(found.segment.base + position, topic, keys, properties.get("UNIQ_KEY"), record.store_timestamp)
            )
    return stored


def brute_force(records: Iterable[Stored], pairs: Iterable[tuple[str, str]], **limits: Any) -> list[tuple[int, str]]:
    """Physical offset and key of each record that carries one of some keys of its topic, by comparing them all."""
    of_each = brute_force_each(records, pairs, **limits)
    return sorted(hit for found in of_each.values() for hit in found)


def brute_force_each(
    records: Iterable[Stored],
    pairs: Iterable[tuple[str, str]],
    *,
    keys: bool = True,
    unique: bool = True,
    start_ms: int | None = None,
    stop_ms: int | None = None,
) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """The same apart for each topic and key, in one pass over the records."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {pair: [] for pair in pairs}
    for record in records:
        if (start_ms is not None and record.time_ms < start_ms) or (stop_ms is not None and record.time_ms >= stop_ms):
            continue
        carried = (record.keys if keys else frozenset()) | ({record.unique} if unique and record.unique else set())
        for key in carried:
            if (hits := found.get((record.topic, key))) is not None:
                hits.append((record.physical_offset, key))
    return {pair: sorted(hits) for pair, hits in found.items()}


def colliding(key: str) -> str:
    """Another key of the same Java hash: a pair of characters ``xy`` hashes as ``(x+1)(y-31)``."""
    for at in range(len(key) - 1):
        low = ord(key[at + 1]) - 31
        if low > ord(" "):
            return f"{key[:at]}{chr(ord(key[at]) + 1)}{chr(low)}{key[at + 2 :]}"
    raise ValueError(f"{key} has no pair of characters that can be exchanged")


def entry_bytes(geometry: Geometry, number: int, field: str) -> int:
    return geometry.entry_position(number) + ENTRY.fields[field][1]
