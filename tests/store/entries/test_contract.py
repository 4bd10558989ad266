"""What every source of queue entries answers: the same, of the same store.

::

    history      rows of a store, and what retention left of them      expected: from what the builder wrote
    source       how the entries of its queues are kept                 files, joined, walked, kept, database, packs
"""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from segmentlog.store import QueueKey, QueueRange, QueueSource, ScanSpec, Snapshot, TaskLimits
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.entries import choose, queue_entries
from segmentlog.store.entries.files import FileEntries
from segmentlog.store.entries.joined import JoinedEntries
from segmentlog.store.entries.packs import PackedQueues
from segmentlog.store.entries.queue_entries import QueueEntries
from segmentlog.store.entries.rocksdb import DatabaseQueues
from segmentlog.store.entries.walked import LogQueues
from segmentlog.store.format.rocksdb_queues import CHECKPOINT, OFFSET_FAMILY, entry_key, max_key
from support.memory_objects import MemoryObjects
from support.store_builder import Geometry, StoreBuilder, java_hash, messages
from support.tampering import QueueFiles, segments

pytestmark = pytest.mark.scaled(quick=18)

SMALL = Geometry(segment_bytes=8192, queue_segment_entries=100)
BEYOND_31_BITS = 1 << 33
NEGATIVE = "negative hash"
assert java_hash(NEGATIVE) < 0


class Entry(NamedTuple):
    """What a source knows of one message."""

    physical_offset: int
    size: int
    tags_code: int
    store_time: int


History = dict[QueueKey, dict[int, Entry]]


class Built:
    """A store whose messages are known."""

    def __init__(self, path: Path, geometry: Geometry = SMALL, log_start: int = 0) -> None:
        self.path = path
        self.builder = StoreBuilder(path, geometry=geometry, log_start=log_start)
        self.history: History = {}

    def begin_at(self, key: QueueKey, offset: int) -> None:
        self.builder._next[key] = offset

    def append(self, count: int, topic: str = "Orders", queues: int = 4, tag: str = "paid") -> None:
        batch = messages(count, topic=topic, queues=queues, tags=(tag,), first=len(self.history) * 1000)
        done = self.builder.append(batch)
        columns = (batch["queueId"].to_pylist(), done.queue_offsets, batch["storeTimestamp"].to_pylist())
        for queue_id, at, time, place, size in zip(*columns, done.physical_offsets, done.sizes, strict=True):
            entry = Entry(int(place), int(size), java_hash(tag), time)
            self.history.setdefault(QueueKey(topic, queue_id), {})[int(at)] = entry

    def delete_segments(self, count: int) -> None:
        """Delete the first segments, and with them the messages in these, as retention does."""
        for path in segments(self.path)[:count]:
            path.unlink()
        begin = int(segments(self.path)[0].name)
        for key, entries in self.history.items():
            self.history[key] = {at: each for at, each in entries.items() if each.physical_offset >= begin}


def nothing(path: Path) -> Built:
    return Built(path)


def one_message(path: Path) -> Built:
    built = Built(path)
    built.append(1, queues=1)
    return built


def some_queues(path: Path) -> Built:
    built = Built(path)
    built.append(130)
    built.append(30, topic="Refunds", queues=1)
    built.append(75)
    return built


def many_short_queues(path: Path) -> Built:
    built = Built(path)
    for number in range(40):
        built.append(3, topic=f"T{number}", queues=2)
    return built


def negative_tags_codes(path: Path) -> Built:
    built = Built(path)
    built.append(50, tag=NEGATIVE)
    return built


def large_physical_offsets(path: Path) -> Built:
    built = Built(path, log_start=BEYOND_31_BITS)
    built.append(90)
    return built


def large_queue_offsets(path: Path) -> Built:
    built = Built(path, log_start=BEYOND_31_BITS)
    for queue_id in range(4):
        built.begin_at(QueueKey("Orders", queue_id), BEYOND_31_BITS // 100 * 100 + 37)
    built.append(120)
    for key in built.history:
        QueueFiles(path, key.topic, key.queue_id).pad(37)  # as a broker fills the front of a file
    return built


def after_retention(path: Path) -> Built:
    built = some_queues(path)
    built.delete_segments(2)
    return built


def segments_that_are_full(path: Path) -> Built:
    built = Built(path, geometry=Geometry(segment_bytes=1024, queue_segment_entries=10))
    built.append(100, queues=2)
    return built


HISTORIES: list[Callable[[Path], Built]] = [
    *(nothing, one_message, some_queues, many_short_queues, negative_tags_codes, large_physical_offsets),
    *(large_queue_offsets, after_retention, segments_that_are_full),
]


# Sources

ARCHIVES: dict[Path, MemoryObjects] = {}


def from_files(built: Built) -> Snapshot:
    return Snapshot.open(built.path)


def from_files_and_log(built: Built) -> Snapshot:
    """Read what a crash left: each queue lost its last entries, and one its directory."""
    for number, (key, entries) in enumerate(sorted(built.history.items())):
        files = QueueFiles(built.path, key.topic, key.queue_id)
        if number == 0 and len(built.history) > 1:
            shutil.rmtree(files.directory)
        elif entries:
            first = int(files.files[0].name) // 20
            files.zero(max(entries) - first - len(entries) // 3, max(entries) + 1 - first)
    (built.path / "abort").touch()
    return Snapshot.open(built.path)


def from_log(built: Built) -> Snapshot:
    return Snapshot.open(built.path, queue_source=QueueSource.COMMIT_LOG)


def from_kept_log(built: Built) -> Snapshot:
    """Read entries that another reader derived and kept."""
    options = {"queue_source": QueueSource.COMMIT_LOG, "queue_cache": built.path.parent / "cache"}
    Snapshot.open(built.path, **options).topics()  # type: ignore[arg-type]
    return Snapshot.open(built.path, **options)  # type: ignore[arg-type]


def from_database(built: Built) -> Snapshot:
    """Read a database that was flushed before the last messages came."""
    rocksdict = pytest.importorskip("rocksdict")
    shutil.rmtree(built.path / "consumequeue", ignore_errors=True)
    places = sorted(each.physical_offset for entries in built.history.values() for each in entries.values())
    dispatched = places[len(places) * 2 // 3] if places else 0
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(built.path / "consumequeue"), options)
    offsets = database.create_column_family(OFFSET_FAMILY, options)
    for key, entries in built.history.items():
        flushed = {at: each for at, each in entries.items() if each.physical_offset < dispatched}
        for at, (place, size, code, time) in flushed.items():
            value = place.to_bytes(8, "big") + size.to_bytes(4, "big") + code.to_bytes(8, "big", signed=True)
            database[entry_key(key, at)] = value + time.to_bytes(8, "big")
        if flushed:
            last = max(flushed)
            offsets[max_key(key)] = flushed[last].physical_offset.to_bytes(8, "big") + last.to_bytes(8, "big")
    offsets[max_key(CHECKPOINT)] = dispatched.to_bytes(8, "big")
    offsets.flush()
    database.flush()
    offsets.close()
    database.close()
    return Snapshot.open(built.path)


def from_packs(built: Built) -> Snapshot:
    objects = MemoryObjects()
    push(built.path, objects)
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    ARCHIVES[built.path] = objects
    return snapshot


SOURCES: dict[Callable[[Built], Snapshot], type[QueueEntries]] = {
    from_files: FileEntries,
    from_files_and_log: JoinedEntries,
    from_log: LogQueues,
    from_kept_log: LogQueues,
    from_database: DatabaseQueues,
    from_packs: PackedQueues,
}


@pytest.fixture(
    scope="module",
    params=[(each, source) for source in SOURCES for each in HISTORIES if (each, source) != (nothing, from_packs)],
    ids=lambda each: f"{each[1].__name__}-{each[0].__name__}",
)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[History, Snapshot]:
    """The messages of a store, and a reader of it."""
    make, source = request.param
    built = make(tmp_path_factory.mktemp("contract") / "store")
    if built.history:
        built.builder.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "WORTH_BYTES", 1)  # small logs are worth a database
        snapshot = source(built)
        assert isinstance(snapshot.entries, SOURCES[source]) or not built.history
    return built.history, snapshot


def rows_of(entries: dict[int, Entry], start: int, stop: int) -> list[tuple[int, int, int, int]]:
    return [(at, *entries[at][:3]) for at in sorted(entries) if start <= at < stop]


def spans(entries: dict[int, Entry]) -> list[tuple[int, int]]:
    """Ranges of a queue to ask for: all, parts of it, nothing."""
    first, stop = min(entries), max(entries) + 1
    middle = (first + stop) // 2
    return [(first, stop), (first, middle), (middle, stop), (middle, middle + 1), (middle, middle), (stop, stop)]


def test_topics_and_queue_ids(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    ids: dict[str, list[int]] = {}
    for key in sorted(history):
        ids.setdefault(key.topic, []).append(key.queue_id)
    assert {topic: list(each) for topic, each in snapshot.entries.ids.items()} == ids


def test_bounds(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    keys = [*history, QueueKey("Nothing", 0), QueueKey("Orders", 99)]
    for bounds in snapshot.entries.bounds(keys):
        entries = history.get(bounds.key)
        held = (bounds.min_offset, bounds.max_offset)
        if entries:
            assert held == (min(entries), max(entries) + 1)
        else:
            assert len(bounds) == 0


def test_entries_of_ranges(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    for key, entries in history.items():
        for start, stop in spans(entries) if entries else []:
            found = snapshot.entries.entries(key, start, stop)
            assert [column.dtype for column in found] == [np.dtype(np.int64)] * 4
            rows = list(zip(*(column.tolist() for column in found), strict=True))
            expected = rows_of(entries, start, stop)
            assert [row[:3] for row in rows] == [row[:3] for row in expected]
            # A walk that only looks for places reads no properties.
            assert all(mine[3] in {0, theirs[3]} for mine, theirs in zip(rows, expected, strict=True))
    assert snapshot.entries.entries(QueueKey("Nothing", 0), 0, 10).size.size == 0


def test_places_and_times(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    for key, entries in history.items():
        if not entries:
            continue
        asked = np.array([*sorted(entries), max(entries) + 1, max(entries) + 1000])
        expected = [entries[at].physical_offset if at in entries else -1 for at in asked.tolist()]
        assert snapshot.entries.places(key, asked).tolist() == expected
        times, is_read = snapshot.entries.times(key, asked)
        assert is_read.tolist() == [at in entries for at in asked.tolist()]
        assert times[is_read].tolist() == [entries[at].store_time for at in sorted(entries)]
        for at in (int(asked[0]), int(asked[-1])):
            known = entries.get(at)
            assert snapshot.entries.place_of(key, at) == (None if known is None else known.physical_offset)
            assert snapshot.entries.time_of(key, at) == (None if known is None else known.store_time)
    assert snapshot.entries.places(QueueKey("Nothing", 0), np.array([0, 5])).tolist() == [-1, -1]


def test_sizes_and_extents(opened: tuple[History, Snapshot], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_entries, "_BLOCK_ROWS", 7)  # sizes are summed up block by block
    history, snapshot = opened
    for key, entries in history.items():
        for start, stop in spans(entries) if entries else []:
            wanted = QueueRange(key, start, stop)
            sizes = [entries[at].size if at in entries else 0 for at in range(start, stop)]
            assert snapshot.entries.sizes(wanted).tolist() == sizes
            assert snapshot.entries.total(wanted) == sum(sizes)
            planned = snapshot.entries.planned(wanted)
            places, found = snapshot.entries.extents(planned, [p.start for p in planned], [p.stop for p in planned])
            assert found.tolist() == sizes
            assert places[found > 0].tolist() == [
                entries[at].physical_offset for at in sorted(entries) if start <= at < stop
            ]


def test_plans_have_each_message_once_and_walk_no_further_than_needed(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    for key, entries in history.items():
        for start, stop in spans(entries) if entries else []:
            planned = snapshot.entries.planned(QueueRange(key, start, stop))
            assert [each.start for each in planned[1:]] == [each.stop for each in planned[:-1]]
            assert sum(each.rows for each in planned) == len(rows_of(entries, start, stop))
            for piece in planned:
                walk = snapshot.entries.narrowed(piece).walk
                inside = rows_of(entries, piece.start, piece.stop)
                if walk is not None and inside:
                    assert walk[0] <= inside[0][1]
                    assert walk[1] >= inside[-1][1]


def test_the_search_for_a_time_begins_around_it(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    for bounds in snapshot.entries.bounds([key for key in history if history[key]]):
        entries = history[bounds.key]
        for at in (min(entries), max(entries)):
            start, stop = snapshot.entries.around(bounds, entries[at].store_time)
            assert bounds.min_offset <= start <= at <= stop <= bounds.max_offset


def test_a_scan_has_all_messages(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    ranges = [QueueRange(b.key, b.min_offset, b.max_offset) for b in snapshot.bounds_of(list(history))]
    spec = ScanSpec(columns=("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode"))
    rows = []
    for task in snapshot.plan(ranges, max_bytes=5000, spec=spec):
        for batch in snapshot.scan(task, spec):
            rows += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    expected = [(*key, *row) for key, entries in history.items() for row in rows_of(entries, 0, 1 << 62)]
    assert sorted(rows) == sorted(expected)


def test_later_looks_show_the_same_queues(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    before = snapshot.entries.bounds(list(history))
    snapshot = snapshot.newer(snapshot.look())
    assert snapshot.entries.bounds(list(history)) == before
    snapshot = snapshot.newer(snapshot.look(), set(history))
    assert snapshot.entries.bounds(list(history)) == before
    snapshot = snapshot.newer()
    assert snapshot.entries.bounds(list(history)) == before


def test_tasks_that_are_made_by_statistics_hold_whole_ranges(opened: tuple[History, Snapshot]) -> None:
    history, snapshot = opened
    ranges = [QueueRange(b.key, b.min_offset, b.max_offset) for b in snapshot.bounds_of(list(history))]
    tasks, rest = snapshot.entries.tasks(ranges, TaskLimits(max_bytes=5000))
    assert sum(task.rows for task in tasks) + sum(map(len, rest)) == sum(map(len, history.values()))


# Change


def held(snapshot: Snapshot, keys: Iterable[QueueKey]) -> list[int]:
    return [len(bounds) for bounds in snapshot.bounds_of(list(keys))]


@pytest.mark.parametrize("source", [from_files, from_log, from_kept_log, from_packs], ids=lambda each: each.__name__)
def test_messages_that_came_later_are_seen_after_a_refresh(source: Callable[[Built], Snapshot], tmp_path: Path) -> None:
    built = some_queues(tmp_path / "store")
    snapshot = source(built)
    before = held(snapshot, built.history)
    built.append(40, topic="New", queues=1)
    if source is from_packs:
        push(built.path, ARCHIVES[built.path])
    assert "New" not in snapshot.topics()
    snapshot = snapshot.newer()
    assert held(snapshot, [*built.history]) == [*before, 40]


@pytest.mark.parametrize("source", [from_files, from_log], ids=lambda each: each.__name__)
def test_a_store_that_was_replaced_is_seen_after_a_refresh(source: Callable[[Built], Snapshot], tmp_path: Path) -> None:
    built = some_queues(tmp_path / "store")
    snapshot = source(built)
    assert held(snapshot, built.history)[0] > 3
    shutil.rmtree(built.path)
    again = Built(built.path)
    again.append(12)
    snapshot = snapshot.newer()
    assert held(snapshot, again.history) == [3] * 4
