"""Stores whose log is that of a DLedger group, made of plain ones: an entry around each record, and files beside it."""

import shutil
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segmentlog.store import MessageStore, Outgoing, StoreConfig
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.dledger import HEADER_BYTES, INDEX
from segmentlog.store.log.commit_log import CommitLog

BLANK = struct.pack(">i", -1)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log, and its record."""

    position: int
    record: bytes
    index: int
    term: int = 1

    @property
    def data(self) -> bytes:
        size = len(self.record)
        header = struct.pack(">iiqqqiiii", 1, size + HEADER_BYTES, self.index, self.term, self.position, 0, 0, 0, size)
        return header + self.record

    @property
    def stop(self) -> int:
        return self.position + HEADER_BYTES + len(self.record)


def entries_of(records: Sequence[bytes], segment_bytes: int, base: int = 0, term: int = 1) -> list[Entry]:
    """Place records as DLedger does: each within a segment, with at least eight bytes after it."""
    found: list[Entry] = []
    at = base
    for index, record in enumerate(records):
        size = len(record) + HEADER_BYTES
        if size + 8 > segment_bytes - at % segment_bytes:
            at += segment_bytes - at % segment_bytes
        placed = record[:28] + (at + HEADER_BYTES).to_bytes(8, "big") + record[36:]
        found.append(Entry(at, placed, index, term))
        at += size
    return found


def write_log(root: Path, entries: Sequence[Entry], segment_bytes: int, committed: int | None) -> Path:
    """Write segments, index and checkpoint of ``dledger-n0``, over what is there; return its path."""
    path = root / "dledger-n0"
    for name in ("data", "index"):
        (path / name).mkdir(parents=True, exist_ok=True)
    segments: dict[int, bytearray] = {}
    ends: dict[int, int] = {}
    for each in entries:
        base = each.position - each.position % segment_bytes
        file = path / "data" / f"{base:020d}"
        if base not in segments:
            segments[base] = bytearray(file.read_bytes() if file.exists() else segment_bytes)
        held = segments[base]
        held[each.position - base : each.stop - base] = each.data
        ends[base] = each.stop - base
    for base in sorted(segments)[:-1]:
        segments[base][ends[base] : ends[base] + 8] = BLANK + struct.pack(">i", segment_bytes - ends[base])
    for base, data in segments.items():
        (path / "data" / f"{base:020d}").write_bytes(data)
    rows = np.array([(1, e.position, len(e.data), e.index, e.term) for e in entries], INDEX)
    (path / "index" / f"{0:020d}").write_bytes(rows.tobytes() + bytes(INDEX.itemsize * 100))
    if committed is not None:
        text = f"#\ncommittedIndex={committed}\nendIndex={len(entries) - 1}\n"
        (path / "checkpoint").write_text(text)
    return path


def records_of(path: Path, numbers: Iterable[int], prefix: str = "k") -> tuple[list[bytes], int]:
    """Return records of messages ``k0``, ``k1``, … in three queues of ``orders``, and the bytes of a segment."""
    with MessageStore.open(path, StoreConfig(segment_bytes=4096, record_crc=False)) as store:
        for number in numbers:
            store.append(
                Outgoing(topic="orders", queue_id=number % 3, body=bytes(number % 50), keys=f"{prefix}{number}")
            )
    log = CommitLog(LocalFileSystem(), [str(path / "commitlog")])
    records: list[bytes] = []
    for found in log.walk(0, log.stop):
        sizes = found.records.field("total_size")
        records += [
            bytes(found.records.buffer[at : at + size].data)
            for at, size in zip(found.records.positions.tolist(), sizes.tolist(), strict=True)
        ]
    return records, log.segments[0].size


def write_store(path: Path, rows: int = 60, committed: int | None = None) -> list[Entry]:
    """Write a store with the messages of `records_of`, without files of its queues and index."""
    records, segment_bytes = records_of(path, range(rows))
    entries = entries_of(records, segment_bytes)
    for name in ("commitlog", "consumequeue", "index", ".segmentlog"):
        shutil.rmtree(path / name, ignore_errors=True)
    (path / "lock").write_text("lock")
    (path / "consumequeue").mkdir()
    write_log(path, entries, segment_bytes, len(entries) - 1 if committed is None else committed)
    return entries
