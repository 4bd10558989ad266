"""Promises of a store, as checks of a disk after a power cut and recovery.

::

    D  durable      what was promised is there, byte for byte
    P  prefix       the log is a prefix of the puts, whole records, nothing invented; zeros after it
    F  derived      queues and index are those derived from the log
    R  recovery     going over it once more changes nothing
    S  stop         damage below the durable point is refused, with its place
    V  visible      a reader of the crashed disk, before recovery, finds every message that was promised, and no other
                    than the log has

What the log should hold is taken from a disk that lost nothing, once its records were compared with the messages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from segmentlog.store.config import StoreConfig
from segmentlog.store.dispatch.derive import derive_segments
from segmentlog.store.errors import NotAStoreError
from segmentlog.store.files.small_file import read_front
from segmentlog.store.format import durable_point
from segmentlog.store.format.consume_queue import ENTRY_BYTES, NATIVE, decode, encode
from segmentlog.store.format.index_file import HEADER, Geometry, decode_header
from segmentlog.store.format.message import SYS_COMMIT, SYS_TRANSACTION, Bytes, Ints
from segmentlog.store.format.properties import KEYS, TAGS, UNIQ_KEY, Properties
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.index.writer import indexed_keys
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.read.snapshot import Snapshot
from segmentlog.store.read.spec import ScanSpec
from segmentlog.store.types import QueueKey
from segmentlog.store.write.message_store import MessageStore
from support.broker_index import chain
from support.reading import whole_queues

from .driver import ROOT, Issued
from .memory_fs import FileNode, MemoryFileSystem

LOG = f"{ROOT}/commitlog"
QUEUES = f"{ROOT}/consumequeue"
INDEX = f"{ROOT}/index"
COMPARED = (LOG, QUEUES, INDEX)
_TIME_MAX = (1 << 63) - 1
NOTHING = np.zeros(0, np.int64)

Seen = dict[QueueKey, tuple[Ints, Ints]]
"""Queue offsets and physical offsets of all that a reader finds in each queue, in the order in which it comes."""


class BrokenPromiseError(AssertionError):
    """A promise that was not kept: its letter, and what was found."""

    def __init__(self, promise: str, found: str) -> None:
        super().__init__(f"{promise}: {found}")
        self.promise = promise


class _Entries(NamedTuple):
    """Entries of one queue: where the record of each ends, and their bytes."""

    ends: Ints
    data: bytes


@dataclass(frozen=True, slots=True)
class Truth:
    """Content of a store if nothing is lost."""

    config: StoreConfig
    image: Bytes  # all bytes of the log, from offset 0
    ends: frozenset[int]  # physical offsets at which the log may end: after each record, and where segments begin
    records: list[tuple[int, int]]  # where each record begins and ends
    queues: dict[QueueKey, _Entries]  # entries of each queue
    keys: dict[int, Ints]  # for each key hash the physical offsets of its records

    @classmethod
    def of(cls, disk: MemoryFileSystem, config: StoreConfig) -> "Truth":
        log = CommitLog(disk, [LOG])
        pieces = [log.view(segment) for segment in log.segments]
        image = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        spans: list[tuple[int, int]] = []
        ends = {segment.base for segment in log.segments} | {log.stop, 0}
        entries: dict[QueueKey, list[np.ndarray]] = {}
        hashes: list[Ints] = []
        offsets: list[Ints] = []
        for found, queues in derive_segments(log, 0, log.stop):
            records = found.records
            physical = records.positions + found.segment.base
            stops = physical + records.field("total_size")
            ends.update(stops.tolist())
            spans += zip(physical.tolist(), stops.tolist(), strict=True)
            for key, derived in queues.items():
                made = np.zeros(derived.size.size, NATIVE)
                made["physical_offset"], made["size"] = derived.physical_offset, derived.size
                made["tags_code"] = derived.tags_code
                entries.setdefault(key, []).append(made)
            of_record, row = indexed_keys(records, Properties(records))
            hashes.append(of_record)
            offsets.append(physical[row])
        keys: dict[int, Ints] = {}
        if hashes:
            all_hashes, all_offsets = np.concatenate(hashes), np.concatenate(offsets)
            keys = {int(h): np.unique(all_offsets[all_hashes == h]) for h in np.unique(all_hashes)}
        made_queues = {}
        for key, parts in entries.items():
            joined = np.concatenate(parts)
            made_queues[key] = _Entries(joined["physical_offset"] + joined["size"], encode(joined))
        return cls(config, image, frozenset(ends), spans, made_queues, keys)

    # Checks

    def check_log(self, disk: MemoryFileSystem, end: int, promised: int) -> None:
        """D and P: the content of the log up to its end, and zeros after it."""
        if end < promised:
            raise BrokenPromiseError("D", f"the log ends at {end}, up to {promised} was promised")
        if end not in self.ends:
            raise BrokenPromiseError("P", f"the log ends at {end}, within a record")
        size = self.config.segment_bytes
        names = {listed.name: listed for listed in disk.list_dir(LOG)}
        for name, listed in names.items():
            if not name.isdecimal() or int(name) % size or listed.size != size:
                raise BrokenPromiseError("P", f"commitlog/{name} of {listed.size} bytes is no segment")
        for base in range(0, end, size):
            if f"{base:020d}" not in names:
                raise BrokenPromiseError("D" if base < promised else "P", f"segment {base} is missing, of {end}")
        for name in names:
            base = int(name)
            node = disk.node(f"{LOG}/{name}")
            assert isinstance(node, FileNode)
            stop = min(max(end - base, 0), size)
            wanted = self.image[base : base + stop]
            if not np.array_equal(node.content[:stop], wanted):
                at = base + int(np.flatnonzero(node.content[:stop] != wanted)[0])
                raise BrokenPromiseError("D" if at < promised else "P", f"the log is altered at {at} of {end}")
            if node.content[stop:].any():
                at = base + stop + int(np.flatnonzero(node.content[stop:])[0])
                raise BrokenPromiseError("P", f"byte {at} is not zero, the log ends at {end}")

    def check_queues(self, disk: MemoryFileSystem, end: int) -> None:
        """F: each queue is the one derived from the log up to its end."""
        per_file = self.config.queue_segment_entries * ENTRY_BYTES
        found: dict[QueueKey, list[tuple[int, bytes]]] = {}
        for topic in disk.list_dir(QUEUES):
            for queue in disk.list_dir(f"{QUEUES}/{topic.name}"):
                directory = f"{QUEUES}/{topic.name}/{queue.name}"
                files = [(int(f.name), disk.read(f"{directory}/{f.name}", 0, f.size)) for f in disk.list_dir(directory)]
                if files:
                    found[QueueKey(topic.name, int(queue.name))] = files
        for key in self.queues.keys() | found.keys():
            entries = self.queues.get(key)
            count = int(np.searchsorted(entries.ends, end, side="right")) if entries else 0
            wanted = entries.data[: count * ENTRY_BYTES] if entries else b""
            files = found.get(key, [])
            if [base for base, _ in files] != list(range(0, len(wanted), per_file)):
                raise BrokenPromiseError("F", f"queue {key} of {count} has the files {[base for base, _ in files]}")
            for base, data in files:
                if data != wanted[base : base + per_file].ljust(per_file, b"\0"):
                    there = len(data.rstrip(b"\0")) / ENTRY_BYTES + base // ENTRY_BYTES
                    raise BrokenPromiseError("F", f"queue {key} holds other than its {count} entries ({there:.1f})")

    def check_index(self, disk: MemoryFileSystem, end: int, *, every: int = 1, turn: int = 0) -> None:
        """F: each key finds the records that the log up to its end has of it; ``every`` of n keys, by turns."""
        if not self.config.index:
            return
        geometry = Geometry(self.config.index_slots, self.config.index_entries)
        files = []
        for listed in disk.list_dir(INDEX):
            data = disk.read(f"{INDEX}/{listed.name}", 0, listed.size)
            if len(data) != geometry.file_bytes:
                raise BrokenPromiseError("F", f"index/{listed.name} has {len(data)} bytes")
            files.append((decode_header(data[: HEADER.itemsize]), _reader_of(data)))
        for number, (key_hash, offsets) in enumerate(self.keys.items()):
            if number % every != turn % every:
                continue
            wanted = offsets[offsets < end].tolist()
            found: set[int] = set()
            for header, read in files:
                found.update(chain(read, geometry, header, key_hash, begin_ms=0, end_ms=_TIME_MAX))
            if sorted(found) != wanted:
                raise BrokenPromiseError("F", f"the index has {sorted(found)} of key {key_hash}, the log {wanted}")

    def check_point(self, disk: MemoryFileSystem, promised: int) -> None:
        """S: whatever a power cut takes, one of the two durable points is whole."""
        if (
            promised
            and durable_point.decode(read_front(disk, StorePaths(ROOT).durable_point, durable_point.FILE_BYTES) or b"")
            is None
        ):
            raise BrokenPromiseError("S", f"no durable point is whole, {promised} bytes were promised")

    def check_seen(self, seen: Seen, promised: int) -> None:
        """V: what a reader found on a disk as a power cut left it."""
        for key in self.queues.keys() | seen.keys():
            entries = self.queues.get(key)
            offsets, physical = seen.get(key, (NOTHING, NOTHING))
            count = int(np.searchsorted(entries.ends, promised, side="right")) if entries else 0
            there = decode(entries.data)["physical_offset"] if entries else NOTHING
            if not np.array_equal(offsets, np.arange(offsets.size)) or offsets.size < count:
                found = f"{offsets[0]} to {offsets[-1]}, {offsets.size} in all" if offsets.size else "none"
                raise BrokenPromiseError("V", f"of queue {key} a reader sees {found}; {count} were promised")
            if not np.array_equal(physical, there[: physical.size]):
                raise BrokenPromiseError("V", f"of queue {key} a reader sees messages that never were")

    def check(
        self, store: MessageStore, disk: MemoryFileSystem, promised: int, *, every: int = 1, turn: int = 0
    ) -> None:
        end = store.end_offset
        self.check_log(disk, end, promised)
        self.check_queues(disk, end)
        self.check_index(disk, end, every=every, turn=turn)


def seen_by_a_reader(disk: MemoryFileSystem, promised: int) -> Seen:
    """V: read a disk before recovery; raise the error of the reader, unless no store has to be there."""
    try:
        snapshot = Snapshot.open(ROOT, fs=disk)
    except NotAStoreError:
        if promised:
            raise
        return {}
    places: dict[QueueKey, list[tuple[int, int]]] = {}
    for task in snapshot.plan(whole_queues(snapshot), max_bytes=1 << 30):
        for batch in snapshot.scan(task, _SEEN):
            topics, ids, offsets, physical, _ = (column.to_pylist() for column in batch.columns)
            for topic, queue_id, *place in zip(topics, ids, offsets, physical, strict=True):
                places.setdefault(QueueKey(topic, queue_id), []).append((place[0], place[1]))
    found = {key: np.array(rows, np.int64).T for key, rows in places.items()}
    return {key: (columns[0], columns[1]) for key, columns in found.items()}


_SEEN = ScanSpec(columns=("topic", "queueId", "queueOffset", "physicalOffset", "flag"), check_crc=True)
"""``flag`` is the record's own: without it only entries would be read."""


def _reader_of(data: bytes) -> Callable[[int, int], bytes]:
    return lambda at, size: data[at : at + size]


def contents(disk: MemoryFileSystem) -> dict[str, bytes]:
    """Bytes of all files that a broker would look at, but for `checkpoint`."""
    return {
        path: node.content.tobytes()
        for path, node in disk.walk()
        if isinstance(node, FileNode) and path.startswith(COMPARED)
    }


def check_messages(disk: MemoryFileSystem, issued: list[Issued], end: int | None = None) -> None:
    """Compare every record of a log, or those that end by an offset, with the message it was made of."""
    found = _messages(CommitLog(disk, [LOG]))
    newest = 0
    for each in issued:
        if each.physical_offset is None or (end is not None and each.physical_offset + each.size > end):
            continue
        record = found.get(each.physical_offset)
        if record is None:
            raise BrokenPromiseError("D", f"message {each.serial} is not at {each.physical_offset}")
        wanted = each.message
        if wanted.properties.get("DELAY", "0") != "0" and wanted.sys_flag & SYS_TRANSACTION in {0, SYS_COMMIT}:
            record = record._replace(topic=wanted.topic, queue_id=wanted.queue_id)
        if record.stored_ms < newest:
            raise BrokenPromiseError("P", f"message {each.serial} has an earlier store time than the one before")
        newest = record.stored_ms
        expected = _Message(
            wanted.topic, wanted.queue_id, wanted.body, wanted.tags, wanted.keys, wanted.uniq_key, wanted.flag,
            each.queue_offset, each.size, record.stored_ms,
        )  # fmt: skip
        if record != expected:
            raise BrokenPromiseError("P", f"message {each.serial} is {record}, it should be {expected}")


class _Message(NamedTuple):
    topic: str
    queue_id: int
    body: bytes
    tags: str | None
    keys: str | None
    uniq_key: str | None
    flag: int
    queue_offset: int
    size: int
    stored_ms: int


def _messages(log: CommitLog) -> dict[int, _Message]:
    messages: dict[int, _Message] = {}
    for found in log.walk(0, log.stop):
        records = found.records
        if not len(records):
            continue
        properties = Properties(records)
        lengths = {"topic": records.topic_length, "body": records.field("body_length")}
        bodies, topics = (
            [records.buffer[at : at + size].tobytes() for at, size in zip(starts.tolist(), lengths[name], strict=True)]
            for name, starts in (("body", records.body_start), ("topic", records.topic_start))
        )
        columns = [
            [topic.decode() for topic in topics],
            records.field("queue_id").tolist(),
            bodies,
            *(properties.column(name).to_pylist() for name in (TAGS, KEYS, UNIQ_KEY)),
            *(records.field(name).tolist() for name in ("flag", "queue_offset", "total_size", "store_timestamp")),
        ]
        offsets = (found.segment.base + records.positions).tolist()
        messages |= {offset: _Message(*row) for offset, row in zip(offsets, zip(*columns, strict=True), strict=True)}
    return messages


def differences(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """Paths whose bytes are not the same; segments of zeros count as missing."""
    found = []
    for path in sorted(one.keys() | other.keys()):
        a, b = one.get(path, b""), other.get(path, b"")
        if a != b and not (path.startswith(LOG) and not a.strip(b"\0") and not b.strip(b"\0")):
            found.append(path)
    return found


def check_order(disk: MemoryFileSystem, issued: list[Issued], end: int) -> None:
    """P, where calls failed: records are messages that were asked for, in that order, and none that was refused."""
    serials = {each.message.uniq_key: each.serial for each in issued}
    refused = {each.serial for each in issued if each.refused}
    log = CommitLog(disk, [LOG])
    last = 0
    for found in log.walk(0, end):
        for key in Properties(found.records).column(UNIQ_KEY).to_pylist():
            serial = serials.get(key, 0)
            if serial <= last:
                raise BrokenPromiseError("P", f"message {serial} ({key}) follows message {last}")
            if serial in refused:
                raise BrokenPromiseError("P", f"message {serial} was refused for want of room and is there")
            last = serial
