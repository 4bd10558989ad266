import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segmentlog.store import MessageStore, Outgoing, QueueKey, Snapshot, StoreConfig
from segmentlog.store.dispatch.derive import derive_queue, derive_queues, rising
from segmentlog.store.entries import walked as module
from segmentlog.store.entries.walked import KeptQueues
from segmentlog.store.files.cache_directory import CacheDirectory
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.log.commit_log import CommitLog
from support.scale import scale
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import contents, overwrite, segments

GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=20)
COUNT = 120


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s", geometry=GEOMETRY) as builder:
        builder.append(messages(COUNT, queues=3))
    return tmp_path / "s"


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    walks = CommitLog.walks

    def noted(self: CommitLog, start: int, stop: int) -> object:
        spans.append((start, stop))
        return walks(self, start, stop)

    monkeypatch.setattr(CommitLog, "walks", noted)
    return spans


def kept(store: Path, cache: Path | None, run: tuple[int, int] | None = None) -> KeptQueues:
    fs = LocalFileSystem()
    return KeptQueues(CommitLog(fs, [str(store / "commitlog")]), fs, None if cache is None else str(cache), lambda: run)


def check(store: Path, found: KeptQueues, stop: int | None = None) -> None:
    """Assert that all queues and their bounds are those of a walk, and parts of them, too."""
    log = CommitLog(LocalFileSystem(), [str(store / "commitlog")])
    stop = log.data_stop() if stop is None else stop
    expected = derive_queues(log, log.min_offset, stop)
    queues = found.queues(stop)
    assert set(queues) == set(expected)
    for key, entries in expected.items():
        assert [column.tolist() for column in queues[key][:3]] == [column.tolist() for column in entries[:3]]
        assert queues.span(key) == (entries.queue_offset[0], entries.queue_offset[-1] + 1)
        reach = found.reach(log.min_offset, stop)
        whole = derive_queue(log, key, log.min_offset, reach)
        part = rising(found.part(key, log.min_offset, reach))
        assert [column.tolist() for column in part] == [column.tolist() for column in whole]


def test_an_unchanged_log_is_walked_once(store: Path, tmp_path: Path, walked: list[tuple[int, int]]) -> None:
    check(store, kept(store, tmp_path / "c"))
    stop = Snapshot.open(store).log.data_stop()
    walked.clear()
    again = kept(store, tmp_path / "c")
    assert set(again.queues(stop)) == {QueueKey("Orders", queue_id) for queue_id in range(3)}
    last = segments(store)[-1]
    assert all(start >= int(last.name) for start, _ in walked)
    assert again.reach(0, stop) > int(last.name)


def test_nothing_is_written_without_a_directory(store: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    found = kept(store, None)
    check(store, found)
    check(store, found.newer(found._log))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_log_that_grows_is_walked_on(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_BYTES", 1000)
    for _ in range(4):
        check(store, kept(store, tmp_path / "c", (1, 1)))
        with MessageStore.open(store, StoreConfig(segment_bytes=4096, queue_segment_entries=20)) as writer:
            for number in range(25):
                writer.append(Outgoing(topic="Orders", body=b"%d" % number, queue_id=number % 4))
    check(store, kept(store, tmp_path / "c", (1, 1)))


@pytest.mark.parametrize("run", [None, (2, 2)])
def test_another_run_may_have_truncated_the_log(
    store: Path, tmp_path: Path, walked: list[tuple[int, int]], run: tuple[int, int] | None
) -> None:
    check(store, kept(store, tmp_path / "c", (1, 1)))
    (segment, *_) = segments(store)
    os.utime(segment)
    walked.clear()
    kept(store, tmp_path / "c", run).queues(4096)
    assert walked[0] == (0, 4096)
    walked.clear()
    kept(store, tmp_path / "c", run).queues(4096)
    assert walked == []


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def another_version(path: Path) -> None:
    batch = pa.ipc.open_file(path.read_bytes()[:-4]).get_batch(0)
    facts = json.loads(batch.schema.metadata[b"segment"]) | {"version": 99}
    schema = batch.schema.with_metadata({**batch.schema.metadata, b"segment": json.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(batch.columns, schema=schema))
    data = sink.getvalue()
    path.write_bytes(data.to_pybytes() + zlib.crc32(data).to_bytes(4, "big"))


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [emptied, another_version, a_directory, Path.unlink])
def test_a_damaged_file_is_walked_again(store: Path, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    check(store, kept(store, tmp_path / "c"))
    for path in (tmp_path / "c").rglob("*.arrow"):
        damage(path)
    check(store, kept(store, tmp_path / "c"))


@settings(
    max_examples=scale(10, 150, 4_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(store: Path, tmp_path: Path, place: float, bit: int) -> None:
    cache = tmp_path / "c"
    if not cache.exists():
        check(store, kept(store, cache))
    path = min(cache.rglob("*.arrow"))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[int(place * len(whole))] ^= 1 << bit
    path.write_bytes(flipped)
    try:
        check(store, kept(store, cache))
    finally:
        path.write_bytes(whole)


def test_a_directory_that_cannot_be_written_costs_a_warning(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c").touch()
    check(store, kept(store, tmp_path / "c"))
    assert "are not kept in files" in caplog.text


def test_files_are_listed_again_only_after_a_segment_is_gone(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    names = CacheDirectory.names
    monkeypatch.setattr(CacheDirectory, "names", lambda self: listed.append(self.path) or names(self))
    found = kept(store, tmp_path / "c")
    for _ in range(3):
        check(store, found)
    assert len(listed) == 1
    first = segments(store)[0]
    first.unlink()
    check(store, found.newer(found._log.again()))
    assert len(listed) == 2
    assert f"{first.name}.arrow" not in {path.name for path in (tmp_path / "c").rglob("*.arrow")}


def test_queues_before_an_earlier_end_than_the_files_have(store: Path, tmp_path: Path) -> None:
    found = kept(store, tmp_path / "c")
    check(store, found)
    for stop in range(100, Snapshot.open(store).log.data_stop(), 777):
        check(store, found, stop)


@settings(
    max_examples=scale(10, 120, 3_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(damage=st.lists(st.tuples(st.integers(0, 12_000), st.binary(min_size=1, max_size=60)), max_size=4))
def test_the_same_as_a_walk_of_a_damaged_log(store: Path, tmp_path: Path, damage: list[tuple[int, bytes]]) -> None:
    before = {path: path.read_bytes() for path in segments(store)}
    try:
        for at, noise in damage:
            overwrite(store, at, noise)
        check(store, kept(store, tmp_path / "c"))
        check(store, kept(store, tmp_path / "c"))
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def test_older_records_after_the_end_of_a_log_are_not_kept(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORTH_BYTES", 1)
    check(store, kept(store, tmp_path / "c", (1, 1)), 2000)  # of the first segment, the front is kept
    again = kept(store, tmp_path / "c", (1, 1))
    end = again.reach(0, 4096)
    assert 1000 < end < 4096
    size = int.from_bytes(contents(store, end, 4), "big")
    overwrite(store, end, bytes(size))  # the end of the log, and whole records after it
    overwrite(store, end + size + 56, bytes(8))  # the first of which is older
    check(store, again)
    check(store, kept(store, tmp_path / "c", (1, 1)))
