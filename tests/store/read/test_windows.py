import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentlog.store import OnCorrupt, QueueKey, QueueRange, ScanSpec, SegmentLogError, Snapshot
from segmentlog.store.dispatch.derive import derive_queues
from segmentlog.store.find import Finder
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.log import commit_log
from segmentlog.store.log.commit_log import CommitLog, store_times_at
from segmentlog.store.read import scan
from support import reading
from support.distant_files import DistantFiles, Piece
from support.store_builder import Geometry, StoreBuilder, messages

TOPICS, TURNS = 8, 100
SPEC = ScanSpec(columns=reading.ALL_COLUMNS, check_crc=True)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> DistantFiles:
    """Files in windows of 200 bytes, of which runs and walks take a few only."""
    monkeypatch.setattr(commit_log, "_WALKED_BYTES", 1000)
    monkeypatch.setattr(commit_log, "_MARGINS", (100, 500))
    monkeypatch.setattr(commit_log, "_HEAD_BYTES", 100)
    for module in (commit_log, scan):
        monkeypatch.setattr(module, "RUN_BYTES_MAX", 2000)
    monkeypatch.setattr(scan, "_AHEAD_BYTES", 3000)
    return DistantFiles(200)


def mixed(path: Path) -> list[int]:
    """A store in which records with and without ``__CRC32#`` alternate, in segments of 4 KiB; physical offsets."""
    places: list[int] = []
    with StoreBuilder(path, geometry=Geometry(segment_bytes=4096, queue_segment_entries=10)) as builder:
        for number in range(8):
            builder.record_crc = RecordCrc.ABSENT if number % 3 else RecordCrc.PROPERTY
            time_ms = 1_700_000_000_000 + 1000 * number
            batch = messages(10, first=10 * number, body_bytes=10 + 40 * number, store_time_start=time_ms)
            places += builder.append(batch).physical_offsets.tolist()
    return places


def answers(store: Path, places: list[int], **options: Any) -> dict[str, Any]:
    """Return the answers of a reader, its log and its look-ups; errors by their text."""
    snapshot = Snapshot.open(store, **options)
    log, found = snapshot.log, dict[str, Any]()
    offsets = np.array(places)

    def ask(name: str, call: Any) -> None:
        try:
            found[name] = call()
        except SegmentLogError as error:
            found[name] = str(error)

    for on_corrupt in OnCorrupt:
        ask(on_corrupt.name, lambda on=on_corrupt: list(reading.read(snapshot, on_corrupt=on)))
    ask("damage", lambda: log.damage(0, log.stop))
    ask("some damage", lambda: log.damage(places[7], places[70]))
    ask("derived", lambda: _plain(derive_queues(log, 0, log.stop)))
    ask("some derived", lambda: _plain(derive_queues(log, places[7], places[70])))
    ask("times", lambda: [each.tolist() for each in store_times_at(log, offsets)])
    ask("sound", lambda: log.sound(offsets, np.diff(offsets, append=log.stop)).tolist())
    ask("records", lambda: [_record(log, place) for place in places])
    ask("found", lambda: _looked_up(Finder(snapshot), offsets))
    return found


def _plain(queues: Any) -> dict[Any, list[Any]]:
    return {key: [column.tolist() for column in derived] for key, derived in queues.items()}


def _record(log: CommitLog, place: int) -> Any:
    found = log.record_at(place)
    return found and (found.segment, found.position, bytes(found.record.body), log.check_crc(found))


def _looked_up(finder: Finder, places: np.ndarray[Any, np.dtype[np.int64]]) -> list[Any]:
    spec = ScanSpec(columns=reading.ALL_COLUMNS, check_crc=True, on_corrupt=OnCorrupt.NULL)
    return [row for batch in finder.read(places[::-1], spec) for row in batch.to_pylist()]


@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("seed", range(1, 40))
def test_damaged_stores_have_the_same_answers(seed: int, narrow: DistantFiles, tmp_path: Path) -> None:
    store, chance = tmp_path / "s", random.Random(seed)
    places = mixed(store)
    files = sorted((store / "commitlog").iterdir())
    queues = sorted(each for each in (store / "consumequeue").rglob("*") if each.is_file())
    for file in [chance.choice(files) for _ in range(seed % 5)] + [chance.choice(queues) for _ in range(seed % 3)]:
        data = bytearray(file.read_bytes())
        at, count = chance.randrange(len(data)), chance.choice([1, 1, 8, 300])
        data[at : at + count] = chance.choice([bytes(count), chance.randbytes(count)])[: len(data) - at]
        file.write_bytes(data)
    expected = answers(store, places)
    assert answers(store, places, fs=narrow) == expected
    assert answers(store, places, fs=DistantFiles(1000)) == expected
    assert not narrow.live


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three segments, with messages of 3 KiB of eight topics in turn."""
    store = tmp_path_factory.mktemp("interleaved") / "s"
    with StoreBuilder(store, geometry=Geometry(segment_bytes=1 << 20, queue_segment_entries=1000)) as builder:
        for first in range(TURNS):
            for topic in range(TOPICS):
                time_ms = 1_700_000_000_000 + 10 * first + topic
                builder.append(
                    messages(1, topic=f"T{topic}", queues=1, first=first, body_bytes=2900, store_time_start=time_ms)
                )
    return store


def scanned(store: Path, fs: DistantFiles, *topics: str) -> tuple[list[reading.Row], int]:
    """Rows of some topics in one task, and their bytes."""
    snapshot = Snapshot.open(store, fs=fs)
    ranges = [
        QueueRange(each.key, each.min_offset, each.max_offset) for topic in topics for each in snapshot.queues(topic)
    ]
    (task,) = snapshot.plan(ranges, max_bytes=1 << 40)
    fs.forget()
    rows = [row for batch in snapshot.scan(task, SPEC) for row in batch.to_pylist()]
    return rows, sum(row["storeSize"] for row in rows)


def overlap(pieces: list[Piece]) -> int:
    ordered = sorted(pieces)
    return sum(max(a[2] - b[1], 0) for a, b in pairwise(ordered) if a[0] == b[0])


@pytest.mark.parametrize("window_bytes", [500, 1 << 20])
def test_a_scan_of_one_queue_maps_its_records_and_short_gaps(interleaved: Path, window_bytes: int) -> None:
    fs = DistantFiles(window_bytes)
    rows, wanted = scanned(interleaved, fs, "T3")
    assert rows == scanned(interleaved, DistantFiles(None), "T3")[0]
    mapped = fs.of_log()
    count = sum(stop - start for _, start, stop in mapped)
    fronts = [piece for piece in mapped if piece[2] - piece[1] > 1 << 19] if window_bytes == 500 else []
    assert not fronts
    if window_bytes == 500:
        assert len(mapped) == len(rows)
        assert count <= wanted + 20 * len(mapped)
    else:
        assert len(mapped) == 3
        assert count <= 3 << 20


def test_a_whole_scan_maps_each_byte_once_and_asks_for_it_before(
    interleaved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (commit_log, scan):
        monkeypatch.setattr(module, "RUN_BYTES_MAX", 100 << 10)
    monkeypatch.setattr(scan, "_AHEAD_BYTES", 200 << 10)
    fs = DistantFiles()
    topics = [f"T{number}" for number in range(TOPICS)]
    rows, wanted = scanned(interleaved, fs, *topics)
    assert len(rows) == TURNS * TOPICS
    mapped = fs.of_log()
    surroundings = [piece for piece in mapped if piece not in fs.soon]
    assert Counter(fs.soon) == Counter(piece for piece in mapped if piece in fs.soon), (
        "each is mapped as it was asked for"
    )
    assert overlap(fs.soon) <= 20 * len(fs.soon)
    assert sum(stop - start for _, start, stop in fs.soon) <= wanted + 20 * len(fs.soon)
    assert len(surroundings) <= 9, "the first record of each segment may have lost a checksum"
    assert fs.peak <= (1 << 20) + (300 << 10), "the segment before is read for a checksum, besides a few runs"


def test_a_reader_opens_and_plans_with_few_requests(interleaved: Path) -> None:
    fs = DistantFiles()

    def requests() -> dict[str, int]:
        """Calls since the last question that are a request each; names are known from a listing."""
        found = {name: count for name, count in fs.calls.items() if name != "list_dir"}
        fs.forget()
        return found

    snapshot = Snapshot.open(interleaved, fs=fs)
    assert requests() == {}
    keys = [QueueKey(f"T{number}", 0) for number in range(TOPICS)]
    bounds = snapshot.bounds_of(keys)
    assert requests() == {"data_end": 2, "read": 2, "read_each": 1, "fronts": 1}, (
        "the end of the log, a marker, and the last queue"
    )
    (task,) = snapshot.plan(
        [QueueRange(each.key, each.min_offset, each.max_offset) for each in bounds], max_bytes=1 << 40
    )
    assert requests() == {"read_each": 1}
    assert sum(batch.num_rows for batch in snapshot.scan(task, SPEC)) == TURNS * TOPICS
    mapped = fs.of_log()
    assert requests() == {"read_each": 1, "fetch_soon": 1, "map": len(mapped)}
    assert len(mapped) == 3 + 3 + 2, "segments, surroundings of their first records, and the segments before these"


@pytest.mark.parametrize("mib", [48, pytest.param(512, marks=pytest.mark.scaled(quick=0))])
def test_a_scan_holds_few_bytes_of_the_log(mib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 32 << 20
    if mib < 512:
        limit = 4 << 20
        for module in (commit_log, scan):
            monkeypatch.setattr(module, "RUN_BYTES_MAX", limit)
        monkeypatch.setattr(scan, "_AHEAD_BYTES", limit)
        monkeypatch.setattr(commit_log, "_WALKED_BYTES", limit)
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=64 << 20, queue_segment_entries=1000)) as builder:
        for first in range(0, mib, 16):
            builder.append(messages(64, first=4 * first, queues=2, body_bytes=1 << 18))
    fs = DistantFiles()
    snapshot = Snapshot.open(tmp_path / "s", fs=fs)
    ranges = reading.whole_queues(snapshot)
    rows = 0
    for task in snapshot.plan(ranges, max_bytes=1 << 40):
        fs.forget()
        for batch in snapshot.scan(task, SPEC):
            rows += batch.num_rows
    assert rows == 4 * mib
    assert fs.peak <= 2 * limit + (2 << 20)
    fs.forget()
    assert sum(len(found.records) for found in snapshot.log.walk(0, snapshot.readable_stop())) == rows
    assert fs.peak <= 2 * (limit + commit_log.FRONT_BYTES)
