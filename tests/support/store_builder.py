"""Builds store directories, as a broker that was shut down cleanly leaves them, out of Arrow batches.

::

    store/
      commitlog/00000000000000000000 …             full-size sparse segments, each but the last ended by a blank record
      consumequeue/TOPIC/QUEUEID/000000000… …      full-size sparse files, one entry of 20 bytes per message
      checkpoint                                   physic and logics timestamps
      config/topics.json

Rows go into the CommitLog in the order given, so the caller decides how queues interleave. Real RocketMQ opens what is
built here: ``tests/store/test_store_builder.py`` asks it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.consume_queue import ENTRY, ENTRY_BYTES
from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.message import MAGIC_BLANK
from segmentlog.store.format.message_encode import RecordColumns, encode, pack_host
from segmentlog.store.format.property_encode import encode_properties

Ints = npt.NDArray[np.int64]

BLANK = np.dtype([("size", ">i4"), ("magic", ">i4")])
CHECKPOINT_BYTES = 4096
TRANSACTION_BITS = 0xC
QUEUED_TRANSACTIONS = (0x0, 0x8)  # none and commit; prepared and rolled back records get no ConsumeQueue entry
NAMED_PROPERTIES = {"tags": "TAGS", "keys": "KEYS", "uniqKey": "UNIQ_KEY"}


class Queues(Enum):
    """True if the built store has its ConsumeQueues."""

    WRITTEN = "written"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Geometry:
    """File sizes of a store. Defaults are RocketMQ's; nothing in the store tells them."""

    segment_bytes: int = 1 << 30
    queue_segment_entries: int = 300_000

    def broker_config(self) -> dict[str, int]:
        return {
            "mappedFileSizeCommitLog": self.segment_bytes,
            "mappedFileSizeConsumeQueue": self.queue_segment_entries * ENTRY_BYTES,
        }


@dataclass(frozen=True, slots=True)
class Appended:
    """Offsets of the rows of one batch: (n,) int64 each, -1 as queue offset of rows without one."""

    physical_offsets: Ints
    queue_offsets: Ints
    sizes: Ints


class StoreBuilder:
    def __init__(
        self,
        path: Path,
        *,
        geometry: Geometry | None = None,
        record_crc: RecordCrc = RecordCrc.ABSENT,
        queues: Queues = Queues.WRITTEN,
        store_host: bytes = pack_host(b"\x7f\0\0\x01", 10911),
        log_start: int = 0,
    ) -> None:
        self.path = path
        self.geometry = geometry or Geometry()
        self.end = log_start
        self.record_crc = record_crc
        self._queues = queues
        self._store_host = store_host
        self._next: dict[tuple[str, int], int] = {}
        self._last_timestamp = 0
        if log_start % self.geometry.segment_bytes:
            raise ValueError(f"{log_start} is no whole number of segments of {self.geometry.segment_bytes} bytes")
        (path / "commitlog").mkdir(parents=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def append(self, batch: pa.RecordBatch) -> Appended:
        """Append rows with columns by native name, hosts by ``pack_host``, times in milliseconds and ascending.

        Needed are ``topic``, ``queueId``, ``body`` and ``storeTimestamp``. ``propertyBytes`` replaces all properties.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        store_timestamps = columns["storeTimestamp"].to_numpy()
        encoded = encode(self._records(columns), record_crc=self.record_crc)
        buffer = encoded.join()
        physical = self._place(encoded.sizes)
        queue_offsets = self._queue_offsets(columns)
        patch(
            buffer,
            encoded.positions,
            queue_offsets=np.maximum(queue_offsets, 0),
            physical_offsets=physical,
            store_timestamps=store_timestamps,
            record_crc=self.record_crc,
        )
        self._write_log(buffer, encoded.positions, encoded.sizes, physical)
        if self._queues is Queues.WRITTEN:
            self._write_queues(columns, physical, encoded.sizes, queue_offsets)
        self._last_timestamp = int(store_timestamps[-1])
        return Appended(physical, queue_offsets, encoded.sizes)

    def close(self) -> None:
        """Write what a clean shutdown leaves: the checkpoint and the topics' configuration."""
        checkpoint = np.zeros(CHECKPOINT_BYTES // 8, ">i8")
        checkpoint[:2] = self._last_timestamp
        (self.path / "checkpoint").write_bytes(checkpoint.tobytes())
        (self.path / "config").mkdir()
        (self.path / "config" / "topics.json").write_text(json.dumps(self._topics()))

    def _records(self, columns: Mapping[str, pa.Array]) -> RecordColumns:
        if "propertyBytes" in columns:
            properties = columns["propertyBytes"]
        else:
            named = {NAMED_PROPERTIES[name]: columns[name] for name in NAMED_PROPERTIES if name in columns}
            given = bool(named) or "properties" in columns
            properties = encode_properties(named, columns.get("properties")) if given else b""

        def numbers(name: str) -> Ints | int:
            return columns[name].to_numpy() if name in columns else 0

        return RecordColumns(
            body=columns["body"],
            topic=columns["topic"],
            queue_id=columns["queueId"].to_numpy(),
            properties=properties,
            flag=numbers("flag"),
            sys_flag=numbers("sysFlag"),
            born_timestamp=numbers("bornTimestamp") if "bornTimestamp" in columns else numbers("storeTimestamp"),
            born_host=columns.get("bornHost", pack_host(b"\x0a\0\0\x01", 40001)),
            store_host=columns.get("storeHost", self._store_host),
            reconsume_times=numbers("reconsumeTimes"),
            prepared_transaction_offset=numbers("preparedTransactionOffset"),
        )

    def _place(self, sizes: Ints) -> Ints:
        """Assign each record its physical offset, rolling where a record and a blank one after it do not fit."""
        segment = self.geometry.segment_bytes
        if int(sizes.max()) + BLANK.itemsize > segment:
            raise ValueError(f"a record of {int(sizes.max())} bytes does not fit into a segment of {segment}")
        physical = np.empty(len(sizes), np.int64)
        stops = np.cumsum(sizes)
        done = 0
        while done < len(sizes):
            before = int(stops[done - 1]) if done else 0
            room = segment - self.end % segment
            fitting = int(np.searchsorted(stops, before + room - BLANK.itemsize, side="right"))
            physical[done:fitting] = self.end + stops[done:fitting] - sizes[done:fitting] - before
            if fitting > done:
                self.end += int(stops[fitting - 1]) - before
            if fitting < len(sizes):
                self._write_blank()
            done = fitting
        return physical

    def _write_blank(self) -> None:
        base = self.end - self.end % self.geometry.segment_bytes
        rest = base + self.geometry.segment_bytes - self.end
        with _full_size(self._segment(base), self.geometry.segment_bytes) as file:
            os.pwrite(file, np.array([(rest, MAGIC_BLANK)], BLANK).tobytes(), self.end - base)
        self.end += rest

    def _write_log(self, buffer: npt.NDArray[np.uint8], positions: Ints, sizes: Ints, physical: Ints) -> None:
        bases = physical - physical % self.geometry.segment_bytes
        for base in np.unique(bases):
            first, last = np.flatnonzero(bases == base)[[0, -1]]
            run = buffer[positions[first] : positions[last] + sizes[last]]
            with _full_size(self._segment(int(base)), self.geometry.segment_bytes) as file:
                assert os.pwrite(file, run, int(physical[first] - base)) == len(run)

    def _segment(self, base: int) -> Path:
        return self.path / "commitlog" / f"{base:020d}"

    def _queue_offsets(self, columns: Mapping[str, pa.Array]) -> Ints:
        offsets = np.full(len(columns["topic"]), -1, np.int64)
        for key, rows in _by_queue(columns):
            start = self._next.get(key, 0)
            offsets[rows] = np.arange(start, start + len(rows))
            self._next[key] = start + len(rows)
        return offsets

    def _write_queues(self, columns: Mapping[str, pa.Array], physical: Ints, sizes: Ints, queue_offsets: Ints) -> None:
        codes = _tags_codes(columns)
        for (topic, queue_id), rows in _by_queue(columns):
            entries = np.empty(len(rows), ENTRY)
            entries["physical_offset"], entries["size"], entries["tags_code"] = physical[rows], sizes[rows], codes[rows]
            self._write_entries(
                self.path / "consumequeue" / topic / str(queue_id), int(queue_offsets[rows[0]]), entries
            )

    def _write_entries(self, folder: Path, start: int, entries: npt.NDArray[np.void]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        per_file = self.geometry.queue_segment_entries
        while len(entries):
            number, slot = divmod(start, per_file)
            here, entries = entries[: per_file - slot], entries[per_file - slot :]
            file_bytes = per_file * ENTRY_BYTES
            with _full_size(folder / f"{number * file_bytes:020d}", file_bytes) as file:
                os.pwrite(file, here.tobytes(), slot * ENTRY_BYTES)
            start += len(here)

    def _topics(self) -> dict[str, object]:
        queue_counts: dict[str, int] = {}
        for topic, queue_id in self._next:
            queue_counts[topic] = max(queue_counts.get(topic, 0), queue_id + 1)
        return {
            "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": self._last_timestamp},
            "topicConfigTable": {
                topic: {
                    "order": False,
                    "perm": 6,
                    "readQueueNums": count,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": topic,
                    "topicSysFlag": 0,
                    "writeQueueNums": count,
                }
                for topic, count in queue_counts.items()
            },
        }


def messages(
    count: int,
    *,
    topic: str = "Orders",
    queues: int = 4,
    body_bytes: int = 20,
    tags: tuple[str, ...] = ("paid", "sent"),
    first: int = 0,
    store_time_start: int = 1_700_000_000_000,
    step_ms: int = 1,
) -> pa.RecordBatch:
    """Make rows that all differ: message i goes to queue i mod ``queues`` and is stored ``step_ms`` after i - 1."""
    numbers = np.arange(first, first + count)
    return pa.record_batch(
        {
            "topic": pa.array([topic]).take(pa.array(np.zeros(count, np.int64))),
            "queueId": pa.array((numbers % queues).astype(np.int32)),
            "body": pa.array([f"message {number} ".ljust(body_bytes, ".").encode() for number in numbers], pa.binary()),
            "tags": pa.array(tags).take(pa.array(numbers % len(tags))),
            "keys": pa.array([f"key-{number}" for number in numbers]),
            "uniqKey": pa.array([f"{number:032X}" for number in numbers]),
            "storeTimestamp": pa.array(store_time_start + (numbers - first) * step_ms),
        }
    )


def _by_queue(columns: Mapping[str, pa.Array]) -> Iterator[tuple[tuple[str, int], Ints]]:
    """Yield each queue of a batch with the numbers of its rows, in order; rows without a queue are left out."""
    topics = columns["topic"].dictionary_encode()
    keys = topics.indices.to_numpy().astype(np.int64) << 32 | columns["queueId"].to_numpy()
    rows = np.arange(len(keys))
    if "sysFlag" in columns:
        rows = rows[np.isin(columns["sysFlag"].to_numpy() & TRANSACTION_BITS, QUEUED_TRANSACTIONS)]
    order = rows[np.argsort(keys[rows], kind="stable")]
    different, starts = np.unique(keys[order], return_index=True)
    names = topics.dictionary.to_pylist()
    for key, chosen in zip(different.tolist(), np.split(order, starts[1:]), strict=False):
        yield (names[key >> 32], key & 0xFFFFFFFF), chosen


def _tags_codes(columns: Mapping[str, pa.Array]) -> Ints:
    """Hash the tags as Java does, once for each different one; 0 where there is none."""
    if "tags" not in columns:
        return np.zeros(len(columns["topic"]), np.int64)
    encoded = pc.fill_null(columns["tags"], "").dictionary_encode()
    hashes = np.array([java_hash(tag) for tag in encoded.dictionary.to_pylist()], np.int64)
    return hashes[encoded.indices.to_numpy()]


def java_hash(text: str) -> int:
    value = 0
    for unit in np.frombuffer(text.encode("utf-16-le"), "<u2").tolist():
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


@contextmanager
def _full_size(path: Path, size: int) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(file).st_size == 0:
            os.ftruncate(file, size)
        yield file
    finally:
        os.close(file)
