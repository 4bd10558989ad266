"""Stores that several processes wrote and something interrupted: what they should hold, and whether they do.

::

    message(seed, writer, serial) ──► MessageStore ──► directory ──► loaded into memory ──► Judge
             │                            │ Placed: what was acknowledged                     ▲
             └────────────────────────────┴───────────────────────────────────────────────────┘

A message follows from three numbers, and its key holds two of them: so every record of a log says what it should be.
"""

import hashlib
import ipaddress
import os
import random
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self
from unittest.mock import patch

import numpy as np

from segmentlog.store import Flush, MessageStore, Outgoing, QueueKey, Services, StoreConfig
from segmentlog.store.encode import batch as outgoing_batch
from segmentlog.store.format.message import MAGIC_BLANK, MAGIC_V1
from segmentlog.store.log.commit_log import CommitLog

from .batches import batch_of
from .crash.driver import ROOT
from .crash.memory_fs import Directory, FileNode, MemoryFileSystem
from .crash.promises import LOG, Truth, contents, differences

SMALL = StoreConfig(
    segment_bytes=32 << 10,
    queue_segment_entries=20,
    index_slots=20,
    index_entries=80,
    flush=Flush.SYNC,
    flush_interval_ms=3,
    flush_least_pages=1,
    queue_flush_interval_ms=5,
    queue_flush_log_bytes=4 << 10,
    queue_flush_thorough_interval_ms=40,
    services=Services.ON_CALL,
)
"""Files so small that they are full after some dozen messages."""

_BORN_MS = 1_763_700_000_000
_TOPICS = ("Orders", "Orders", "Payments", "%RETRY%group")
_LENGTHS = (0, 7, 40, 200, 700, 1500)


def message(seed: int, writer: int, serial: int) -> Outgoing:
    rng = random.Random(f"{seed} {writer} {serial}")
    return Outgoing(
        topic=rng.choice(_TOPICS),
        queue_id=rng.randrange(3),
        body=rng.randbytes(rng.choice(_LENGTHS)),
        tags=rng.choice([None, "red", "blue"]),
        keys=rng.choice([None, "k1", "k2 k3"]),
        uniq_key=f"{writer}.{serial}",
        properties={"serial": str(serial)},
        flag=rng.randrange(1 << 31),
        born_timestamp=_BORN_MS + serial,
        born_host=rng.choice(["10.0.0.1:4000", "[fd00::1]:4001"]),
        reconsume_times=rng.randrange(16),
    )


class Placed(NamedTuple):
    writer: int
    serial: int
    physical_offset: int
    queue_offset: int
    size: int


_ISSUED, _PLACED = 1, 2
_LINE = struct.Struct("<iqqqqq")
LINE_BYTES = _LINE.size


class Pipe:
    """Reports of a writer before and after each call, which remain when the writer is killed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def issued(self, writer: int, first: int, count: int) -> None:
        os.write(self._fd, _LINE.pack(_ISSUED, writer, first, count, 0, 0))

    def placed(self, placed: Iterable[Placed]) -> None:
        os.write(self._fd, b"".join(_LINE.pack(_PLACED, *each) for each in placed))


@dataclass(slots=True)
class Heard:
    issued: set[tuple[int, int]] = field(default_factory=set)  # writer and serial of all that may have been put
    placed: list[Placed] = field(default_factory=list)  # what was acknowledged

    @classmethod
    def of(cls, said: bytes) -> Self:
        """Take it from the bytes of a pipe; what was cut off at their end was not said."""
        heard = cls()
        for kind, *numbers in _LINE.iter_unpack(said[: len(said) // _LINE.size * _LINE.size]):
            if kind == _ISSUED:
                writer, first, count = numbers[:3]
                heard.issued.update((writer, first + row) for row in range(count))
            else:
                heard.placed.append(Placed(*numbers))
        return heard


def load(path: Path) -> MemoryFileSystem:
    """Copy a store directory into memory, where `ROOT` is."""
    disk = MemoryFileSystem()
    disk.make_dir(os.path.dirname(ROOT))
    parent = disk.node(os.path.dirname(ROOT))
    assert isinstance(parent, Directory)
    parent.entries[os.path.basename(ROOT)] = _loaded(path)
    return MemoryFileSystem(root=disk.root)


def _loaded(path: Path) -> Directory:
    entries: dict[str, FileNode | Directory] = {}
    for each in os.scandir(path):
        if each.is_dir():
            entries[each.name] = _loaded(path / each.name)
        else:
            data = (path / each.name).read_bytes()
            entries[each.name] = FileNode(each.inode(), np.frombuffer(data, np.uint8))
    return Directory(0, entries)


def tree(path: Path) -> dict[str, str]:
    """Say of everything below a directory what it holds, to compare it with later.

    The file ``lock`` is not opened: closing it would drop the lock, if this process has it.
    """
    found = {}
    for folder, _, files in os.walk(path):
        found[os.path.relpath(folder, path)] = "directory"
        for name in files:
            if name == "lock":
                status = os.stat(os.path.join(folder, name))
                found[name] = f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
                continue
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(file.name, path)] = hashlib.sha256(file.read()).hexdigest()
    return found


def open_files(below: Path) -> list[str]:
    """Return the files below a directory, and itself, that this process has open; those of other tests come and go."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # of the listing's own
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(each for each in found if each == str(below) or each.startswith(f"{below}/"))


@dataclass(slots=True)
class Tally:
    """Counts of many judgements; tests assert on them that they tested something."""

    judged: int = 0
    acknowledged: int = 0
    kept: int = 0
    lost: int = 0
    cut: int = 0
    with_acknowledged: int = 0

    def add(self, other: "Tally") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_SIZE = struct.Struct(">ii")
_HEAD = struct.Struct(">iiiiiqqiq")


@dataclass(frozen=True, slots=True)
class Record:
    """A record, read here by hand: what judges a store must not be what wrote it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    born_timestamp: int
    born_host: str
    reconsume_times: int
    body: bytes
    properties: dict[str, str]
    sys_flag: int
    store_timestamp: int
    size: int

    @property
    def is_queued(self) -> bool:
        return self.sys_flag & 0xC in {0, 8}

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Read it; a wrong length, magic or checksum, or one that is missing, raises."""
        size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = _HEAD.unpack_from(data)
        assert size == len(data)
        assert magic == MAGIC_V1
        at = _HEAD.size
        address = 16 if sys_flag & 0x10 else 4
        host, port = (
            ipaddress.ip_address(data[at : at + address]),
            int.from_bytes(data[at + address : at + address + 4]),
        )
        at += address + 4
        store_timestamp = int.from_bytes(data[at : at + 8])
        at += 8 + (16 if sys_flag & 0x20 else 4) + 4
        reconsume_times, _, length = struct.unpack_from(">iqi", data, at)
        at += 16
        body = data[at : at + length]
        at += length
        assert zlib.crc32(body) & 0x7FFFFFFF == body_crc
        topic = data[at + 1 : at + 1 + data[at]].decode()
        at += 1 + data[at]
        assert int.from_bytes(data[at : at + 2]) == len(data) - at - 2
        text = data[at + 2 :].decode()
        pairs = dict(pair.split("\x01", 1) for pair in text.split("\x02")[:-1])
        # least significant digit first, over all bytes before it
        assert int(pairs.pop("__CRC32#")[::-1]) == zlib.crc32(data[:-20]) & 0x7FFFFFFF
        shown = f"[{host}]:{port}" if address == 16 else f"{host}:{port}"
        return cls(
            topic, queue_id, queue_offset, physical_offset, flag, born, shown, reconsume_times, body, pairs,
            sys_flag, store_timestamp, size,
        )  # fmt: skip

    def differs_from(self, wanted: Outgoing) -> str:
        named = {"TAGS": wanted.tags, "KEYS": wanted.keys, "UNIQ_KEY": wanted.uniq_key}
        if self.properties != {**wanted.properties, **{name: each for name, each in named.items() if each is not None}}:
            return "property"
        names = ("topic", "queue_id", "flag", "born_timestamp", "born_host", "reconsume_times", "body")
        return next((name for name in names if getattr(self, name) != getattr(wanted, name)), "")


class Judge:
    """Follows one store of messages of a seed through its interruptions."""

    def __init__(self, seed: int, config: StoreConfig) -> None:
        self._seed = seed
        self._config = replace(config, services=Services.ON_CALL, flush=Flush.SYNC)
        self._image = np.zeros(0, np.uint8)
        self._there: dict[tuple[int, int], Placed] = {}
        self._nexts: dict[QueueKey, int] = {}
        self._allowed: set[tuple[int, int]] = set()
        self.tally = Tally()

    def judge(self, path: Path, heard: Heard) -> None:
        """Recover a copy of the store, and compare it with all that was said up to now."""
        disk = load(path)
        store = MessageStore.open(ROOT, self._config, fs=disk)
        end = store.end_offset
        self._allowed |= heard.issued
        self._follow(disk, end)
        for placed in heard.placed:
            found = self._there.get((placed.writer, placed.serial))
            assert found == placed, f"acknowledged as {placed}, found as {found}; the log ends at {end}"
        truth = Truth.of(disk, self._config)
        truth.check_log(disk, end, end)
        truth.check_queues(disk, end)
        truth.check_index(disk, end)
        before = contents(disk)
        store.close()
        MessageStore.open(ROOT, self._config, fs=disk).close()
        assert differences(before, contents(disk)) == []
        self._count(heard, store.recovered.cut_bytes)

    def _follow(self, disk: MemoryFileSystem, end: int) -> None:
        """Compare each record that is new with the message that it should be."""
        log = CommitLog(disk, [LOG])
        image = np.concatenate([log.view(segment) for segment in log.segments] or [self._image[:0]])[:end]
        known = self._image.size
        assert image.size >= known, f"the log ended at {known}, now at {image.size}"
        assert np.array_equal(image[:known], self._image), "records that were there have changed"
        at = known
        while at < end:
            size, magic = _SIZE.unpack_from(image, at)
            if magic == MAGIC_BLANK:
                assert size == -at % self._config.segment_bytes
                at += size
                continue
            record = Record.of(image[at : at + size].tobytes())
            name = record.properties["UNIQ_KEY"]
            writer, serial = map(int, name.split("."))
            assert (writer, serial) in self._allowed, f"nobody put message {name}"
            assert (writer, serial) not in self._there, f"message {name} is there twice"
            difference = record.differs_from(message(self._seed, writer, serial))
            assert not difference, f"message {name} is there with another {difference}"
            key = QueueKey(record.topic, record.queue_id)
            assert record.queue_offset == self._nexts.get(key, 0), f"a hole or a double number in queue {key}"
            assert record.physical_offset == at
            self._nexts[key] = record.queue_offset + 1
            self._there[writer, serial] = Placed(writer, serial, at, record.queue_offset, size)
            at += size
        self._image = image

    def _count(self, heard: Heard, cut: int) -> None:
        acknowledged = {(placed.writer, placed.serial) for placed in heard.placed}
        open_ends = heard.issued - acknowledged
        kept = sum(each in self._there for each in open_ends)
        tally = self.tally
        tally.judged += 1
        tally.acknowledged += len(acknowledged)
        tally.with_acknowledged += bool(acknowledged)
        tally.kept += kept
        tally.lost += len(open_ends) - kept
        tally.cut += cut > 0


def put_some(store: MessageStore, pipe: Pipe, seed: int, writer: int, *, first: int, batches: bool) -> int:
    """Put one message, or a batch of some, and report it; return the serial of the next one."""
    rng = random.Random(f"{seed} {writer} {first} count")
    count = rng.randrange(2, 30) if batches and rng.random() < 0.4 else 1
    messages = [message(seed, writer, first + row) for row in range(count)]
    pipe.issued(writer, first, count)
    if count == 1:
        one = store.append(messages[0])
        pipe.placed([Placed(writer, first, one.physical_offset, one.queue_offset, one.size)])
    else:
        large = outgoing_batch.LARGE_BATCH_BYTES if first // 2 % 2 else 0  # every other one leaves its bodies apart
        with patch.object(outgoing_batch, "LARGE_BATCH_BYTES", large):
            many = store.append_batch(batch_of(messages))
        columns = (many.physical_offsets.tolist(), many.queue_offsets.tolist(), many.sizes.tolist())
        pipe.placed(Placed(writer, first + row, *each) for row, each in enumerate(zip(*columns, strict=True)))
    return first + count
