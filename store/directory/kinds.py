"""Kinds of a store: which release and settings wrote it, and what works with it.

::

    compaction/  abort.bak            5.0 and later             dledger-n0/         a DLedger group: only read
    rocksdbstore/                     5.4 and later             consumequeue/CURRENT  queues in RocksDB: only read
    consumequeue_ext/                 enableConsumeQueueExt     commitlog: 1 GiB    mappedFileSizeCommitLog
    first record: magic of version 2  5.1 and later             first record ends with __CRC32#  enabledAppendPropCRC
    topics.json: stateVersion         5.0 and later             topics.json without it           4

Names in the directory, the first record of the log, and ``config/topics.json`` are looked at. A statement has the path
that shows it. A setting that leaves no trace, or none yet, is not stated.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..errors import SegmentLogError
from ..files.fs import FileSystem, LocalFileSystem
from ..files.rocksdb import is_rocksdb
from ..files.segments import SegmentFile, list_segments
from ..format.checksums import CRC_NAME
from ..format.consume_queue import ENTRY_BYTES
from ..format.message import MAGIC_V1, MAGIC_V2, RECORD_CRC_BYTES
from ..format.naming import LMQ_PREFIX
from ..format.store_paths import BATCH_QUEUES, COMPACTION, CONSUME_QUEUE_EXTENSION, DLEDGER, OURS, StorePaths
from .documents import load_document
from .group_offsets import offsets_path
from .layout import list_compacted_topics, log_directories, look_at_queues

_READ_ONLY: Final = "read and streamed; not written, retained or promoted until its queues are rebuilt"
_RELEASES: Final = (
    ("rocksdbstore", "RocketMQ later than 5.3.3"),
    (COMPACTION, "RocketMQ 5.0 or later"),
    ("timerwheel", "RocketMQ 5.0 or later"),
    ("abort.bak", "RocketMQ 5.0 or later"),
)
"""Names of the newest releases first."""
_NEWEST: Final = _RELEASES[0][0]
_HEAD: Final = struct.Struct(">ii")  # of a record: its size and magic number
_VERSION_2: Final = MAGIC_V2.to_bytes(4, "big", signed=True)
_NAMES: Final = (
    (DLEDGER, "DLedger", "read, streamed and archived, as far as the group has agreed; not written or retained"),
    ("tieredstore", "tiered storage", "files on this disk are read; messages that are only in remote storage are not"),
    ("epochFileCheckpoint", "controller mode", "read as other stores; its epochs are not those of our replicas"),
    (BATCH_QUEUES, "batch queues", "messages that were sent in batches to topics with queue.type=BatchCQ are not read"),
    (CONSUME_QUEUE_EXTENSION, "enableConsumeQueueExt", "tags are looked for in the records"),
    ("timerwheel", "timerWheelEnable, the default of 5.x", "timer messages are listed as delayed ones"),
    (OURS, "segmentlog", "was opened for writing by this library"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement about a store.

    Attributes
    ----------
    name
        ``release``, ``kind`` or ``setting``.
    text
        In words.
    path
        The file or directory that shows it.
    """

    name: str
    text: str
    path: str


def store_facts(path: str | os.PathLike[str]) -> list[Fact]:
    """Return what is known about the release, the kinds and the settings of a store; empty if nothing is.

    Parameters
    ----------
    path
        The store directory.
    """
    fs, root = LocalFileSystem(), os.path.abspath(path)
    names = [entry.name for entry in fs.list_dir(root)]
    found: list[Fact] = []
    for part in (_release(fs, root, names), _kinds(fs, root, names), _sizes(fs, root), _first_record(fs, root)):
        with contextlib.suppress(SegmentLogError):  # such as a link: readers say what is wrong
            found.extend(part)
    return found


def _release(fs: FileSystem, root: str, names: list[str]) -> Iterator[Fact]:
    named = next(((name, text) for name, text in _RELEASES if name in names), None)
    if named is not None and named[0] == _NEWEST:
        yield Fact("release", named[1], os.path.join(root, _NEWEST))
        return
    is_ours = OURS in names  # then records and topics may be of this library, in the form of 5.x
    first = None if is_ours else _first_segment(fs, root)
    if first is not None and fs.read(first.path, first.lead, _HEAD.size)[4:] == _VERSION_2:
        yield Fact("release", "RocketMQ 5.1 or later: the first record is of version 2", first.path)
    elif named is not None:
        yield Fact("release", named[1], os.path.join(root, named[0]))
    elif not is_ours:
        path = StorePaths(root).topics
        version = load_document(fs, path, lambda found: (found.document or {}).get("dataVersion"))
        if isinstance(version, dict):
            text = "RocketMQ 5.0 or later" if "stateVersion" in version else "RocketMQ 4"
            yield Fact("release", f"{text}, which wrote the version of the topics", path)


def _first_segment(fs: FileSystem, root: str) -> SegmentFile | None:
    return next((each for each in _segments(fs, root) if each.size), None)


def _segments(fs: FileSystem, root: str) -> list[SegmentFile]:
    return list_segments(fs, log_directories(root, [each.name for each in fs.list_dir(root)]))


def _first_record(fs: FileSystem, root: str) -> Iterator[Fact]:
    first = _first_segment(fs, root)
    head = b"" if first is None else fs.read(first.path, first.lead, _HEAD.size)
    if first is None or len(head) < _HEAD.size:
        return
    size, magic = _HEAD.unpack(head)
    if magic in {MAGIC_V1, MAGIC_V2} and RECORD_CRC_BYTES < size <= first.size:
        end = fs.read(first.path, first.lead + size - RECORD_CRC_BYTES, RECORD_CRC_BYTES)
        if end.startswith(CRC_NAME):
            yield Fact("setting", "enabledAppendPropCRC=true: the first record has a checksum of its own", first.path)


def _kinds(fs: FileSystem, root: str, names: list[str]) -> Iterator[Fact]:
    paths = StorePaths(root)
    for prefix, kind, text in _NAMES:
        for name in names:
            if name == prefix or (prefix == DLEDGER and name.startswith(prefix)):
                yield Fact("kind", f"{kind}: {text}", os.path.join(root, name))
                break
    if list_compacted_topics(fs, root):
        text = "compacted topics: all messages of the CommitLog are read, not the compacted log; no append adds to it"
        yield Fact("kind", text, os.path.join(root, COMPACTION))
    queues = look_at_queues(fs, root)
    if queues.in_rocksdb:
        apart = is_rocksdb(fs, paths.consume_queue_rocksdb)
        setting = "rocksdbCQDoubleWriteEnable, or an upgrade" if queues.ids else "storeType=defaultRocksDB"
        where = paths.consume_queue_rocksdb if apart else paths.consume_queues
        yield Fact("kind", f"queues in RocksDB{' and in files' if queues.ids else ''} ({setting}): {_READ_ONLY}", where)
    light = sum(topic.startswith(LMQ_PREFIX) for topic in queues.ids)
    if light:
        text = f"light queues, {light} in files (enableLmq): read and streamed; not appended to"
        yield Fact("kind", text, paths.consume_queues)
    yield from _positions(fs, root)
    if is_rocksdb(fs, os.path.join(root, "rocksdbstore")) and not fs.list_dir(paths.index):
        text = "no index file; keys may be in RocksDB (indexRocksDBEnable): look-ups read the log"
        yield Fact("kind", text, os.path.join(root, "rocksdbstore"))


def _positions(fs: FileSystem, root: str) -> Iterator[Fact]:
    """Facts about topics and positions of groups that are kept in another place than most brokers keep them."""
    paths = StorePaths(root)
    if fs.size(paths.light_offsets) is not None:
        where = offsets_path(fs, root)
        yield Fact("kind", f"positions of groups (enableLmq): those of {os.path.basename(where)} count", where)
    for name in ("topics", "consumerOffsets"):
        if is_rocksdb(fs, os.path.join(paths.config, name)):
            text = f"{name} in RocksDB: read with the extra `rocksdb`"
            yield Fact("kind", text, os.path.join(paths.config, name))


def _sizes(fs: FileSystem, root: str) -> Iterator[Fact]:
    paths = StorePaths(root)
    segments = _segments(fs, root)
    if segments and segments[0].size:
        text = f"mappedFileSizeCommitLog={segments[0].size}, {len(segments)} segments"
        yield Fact("setting", text, segments[0].path)
    for topic in fs.list_dir(paths.consume_queues):
        directory = os.path.join(paths.consume_queues, topic.name)
        for queue in fs.list_dir(directory) if topic.is_dir else ():
            files = list_segments(fs, [os.path.join(directory, queue.name)])
            if files and files[0].size:
                entries = files[0].size // ENTRY_BYTES
                text = f"mappedFileSizeConsumeQueue={files[0].size}, {entries} entries in a file"
                yield Fact("setting", text, files[0].path)
                return
