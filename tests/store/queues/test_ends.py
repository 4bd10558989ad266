"""Ends of queues after a crash."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentlog.store import QueueKey
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.segments import list_segments
from segmentlog.store.format.consume_queue import ENTRY, ENTRY_BYTES, PAD_SIZE
from segmentlog.store.format.message import MIN_RECORD_BYTES
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.queues import ends
from segmentlog.store.queues.ends import QueueEnds, find_ends
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import put_at, segments

PER_FILE = 8
QUEUES = 4
FS = LocalFileSystem()
TORN: Final[dict[str, Callable[[bytes, bytes], bytes]]] = {
    "never written": lambda _, __: bytes(ENTRY_BYTES),
    "its second half": lambda raw, _: bytes(10) + raw[10:],
    "its first half": lambda raw, _: raw[:10] + bytes(10),
    "another size": lambda raw, _: raw[:8] + (107).to_bytes(4, "big") + raw[12:],
    "the entry before": lambda _, before: before,
    "a pad": lambda _, __: bytes(8) + PAD_SIZE.to_bytes(4, "big") + bytes(8),
    "below zero": lambda _, __: b"\xff" * ENTRY_BYTES,
    "another record": lambda raw, _: raw[:7] + bytes([raw[7] ^ 1]) + raw[8:],
}
"""Torn or damaged forms of an entry; the second argument is the entry before it."""


class Built:
    """A store whose queues are torn again and again."""

    def __init__(self, path: Path) -> None:
        geometry = Geometry(segment_bytes=4096, queue_segment_entries=PER_FILE)
        with StoreBuilder(path / "s", geometry=geometry, log_start=4096) as builder:
            builder.append(messages(20 * QUEUES, queues=QUEUES))
        self.end = builder.end
        shutil.copytree(path / "s" / "commitlog", path / "later")
        for segment in segments(path / "s")[: len(segments(path / "s")) - 1]:
            (path / "later" / segment.name).unlink()
        self.logs = [CommitLog(FS, [str(folder)]) for folder in (path / "s" / "commitlog", path / "later")]
        folders = {QueueKey("Orders", queue): path / "s" / "consumequeue" / "Orders" / str(queue) for queue in range(4)}
        self.files = {key: list_segments(FS, [str(folder)]) for key, folder in folders.items()}
        self.raw = {file.path: Path(file.path).read_bytes() for files in self.files.values() for file in files}

    def restore(self) -> None:
        for path, raw in self.raw.items():
            Path(path).write_bytes(raw)

    def tear(self, queue: int, offset: int, how: str) -> None:
        file = self.files[QueueKey("Orders", queue)][offset // PER_FILE]
        at = offset % PER_FILE * ENTRY_BYTES
        raw = Path(file.path).read_bytes()
        before = raw[at - ENTRY_BYTES : at] if at else bytes(ENTRY_BYTES)
        put_at(Path(file.path), at, TORN[how](raw[at : at + ENTRY_BYTES], before))

    def expected(self, log: CommitLog, log_end: int) -> QueueEnds:
        """Return the ends by the rules, one entry after the other."""
        found, reached = {}, -1
        for key, files in self.files.items():
            for file in reversed(files):
                entries = np.fromfile(file.path, ENTRY).tolist()
                row = last_staying(entries, log, log_end)
                if row is not None:
                    found[key] = file.base // ENTRY_BYTES + row + 1
                    reached = max(reached, entries[row][0])
                    break
        return QueueEnds(found, reached)


def last_staying(entries: list[tuple[int, int, int]], log: CommitLog, log_end: int) -> int | None:
    kept, most, before = None, -1, None
    for row, (physical, size, _) in enumerate(entries):
        if not (physical >= 0 and MIN_RECORD_BYTES <= size < PAD_SIZE and physical + size <= log_end):
            before = None
            continue
        if physical > most or (physical == most and (physical, size) == before):
            record = log.record_at(physical)
            if physical < log.min_offset or (record is not None and record.record.total_size == size):
                kept = row
        most = max(most, physical)
        before = (physical, size)
    return kept


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("ends"))


TEARS = st.lists(
    st.tuples(st.integers(0, QUEUES - 1), st.integers(0, 19) | st.integers(17, 19), st.sampled_from(sorted(TORN))),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(tears=TEARS, cut=st.integers(0, 2000), later=st.booleans(), together=st.sampled_from([1, 300, 1 << 20]))
def test_queues_end_where_each_entry_says(
    built: Built, tears: list[tuple[int, int, str]], cut: int, later: bool, together: int
) -> None:
    built.restore()
    for queue, offset, how in tears:
        built.tear(queue, offset, how)
    log = built.logs[later]
    with patch.object(ends, "_TOGETHER_BYTES", together):
        found = find_ends(FS, built.files, built.end - cut, log)
    assert found == built.expected(log, built.end - cut)


def test_a_file_that_was_cut_inside_of_an_entry(built: Built) -> None:
    built.restore()
    key = QueueKey("Orders", 1)
    last = Path(built.files[key][-1].path)
    last.write_bytes(last.read_bytes()[: 3 * ENTRY_BYTES + 7])
    assert find_ends(FS, built.files, built.end, built.logs[0]) == built.expected(built.logs[0], built.end)
    assert find_ends(FS, built.files, built.end, built.logs[0]).ends[key] == 16 + 3


def test_queues_without_files_have_no_end(built: Built) -> None:
    built.restore()
    assert find_ends(FS, {}, built.end, built.logs[0]) == QueueEnds({}, -1)
    assert find_ends(FS, {QueueKey("Orders", 0): []}, built.end, built.logs[0]) == QueueEnds({}, -1)


def test_queues_that_end_well_are_compared_together(built: Built) -> None:
    built.restore()
    with patch.object(CommitLog, "sound", autospec=True, side_effect=CommitLog.sound) as sound:
        found = find_ends(FS, built.files, built.end, built.logs[0])
    assert sound.call_count == 1
    assert found == QueueEnds(dict.fromkeys(built.files, 20), found.last_physical)
