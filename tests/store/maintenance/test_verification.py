import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, NotAStoreError, Outgoing
from segmentlog.store.maintenance import Kind, VerifyReport, verify
from support import fixtures
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import overwrite, put_at, segments
from support.written_stores import tree


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = write_small_store(tmp_path / "store")
    with MessageStore.open(path, CONFIG) as opened:
        opened.append(Outgoing(topic="orders", queue_id=7, body=b"last", keys="k a b"))
    return path


def looked_at(store: Path) -> VerifyReport:
    before = tree(store)
    report = verify(store)
    assert tree(store) == before
    return report


def places(store: Path) -> list[tuple[Kind, int, int]]:
    return [(found.kind, found.offset, found.count) for found in looked_at(store).findings]


def test_a_store_without_queues_and_index_lacks_every_entry(store: Path) -> None:
    for file in [*store.glob("consumequeue/*/*/*"), *store.glob("index/*")]:
        file.unlink()
    report = looked_at(store)
    counts = {kind: sum(found.count for found in report.findings if found.kind is kind) for kind in Kind}
    assert {kind: count for kind, count in counts.items() if count} == {
        Kind.QUEUE_ENTRY: ROWS + 1,
        Kind.INDEX_GAP: ROWS + 3,
    }
    assert (report.entries, report.keys) == (0, 0)


def test_damage_of_the_log_is_named_with_its_place(store: Path) -> None:
    put_at(segments(store)[1], 1000, b"\xff" * 250)  # more than a record
    report = looked_at(store)
    log = [finding for finding in report.findings if finding.kind is Kind.LOG_DAMAGE]
    assert len(log) == 1
    assert log[0].path == str(segments(store)[1])
    assert log[0].offset <= CONFIG.segment_bytes + 1000 < log[0].offset + log[0].count
    assert report.records < ROWS + 1
    # Whatever named the lost record names nothing now.
    assert {finding.kind for finding in report.findings} == {Kind.LOG_DAMAGE, Kind.QUEUE_ENTRY, Kind.INDEX_ENTRY}


def test_flipped_bits_empty_and_missing_segments_are_damage(store: Path) -> None:
    sound, size = looked_at(store), CONFIG.segment_bytes
    (store / "commitlog" / f"{len(segments(store)) * size:020d}").touch()
    assert looked_at(store) == sound, "the last one may be empty"
    second = segments(store)[1]
    second.write_bytes(b"")
    log = [finding for finding in looked_at(store).findings if finding.kind is Kind.LOG_DAMAGE]
    assert (log[0].path, log[0].offset, log[0].count) == (str(second), size, 0)
    assert (log[1].offset, log[1].count) == (size, size)
    second.unlink()
    assert [each for each in places(store) if each[0] is Kind.LOG_DAMAGE] == [(Kind.LOG_DAMAGE, size, size)]
    put_at(segments(store)[0], segments(store)[0].read_bytes().index(b"body 17"), b"Body 17")
    assert places(store)[0][0] is Kind.LOG_DAMAGE
    assert places(store)[0][1] < size


@pytest.mark.parametrize(
    ("damage", "offset", "count"),
    [
        (lambda file: put_at(file, 40, b"\0\0\0\0\0\0\0\1"), 2, 1),  # another physical offset
        (lambda file: put_at(file, 3 * 20 + 8, b"\0\0\0\7"), 3, 1),  # another size
        (lambda file: put_at(file, 5 * 20 + 12, b"\1"), 5, 1),  # another tags code
        (lambda file: put_at(file, 0, bytes(60)), 0, 3),  # never written
    ],
)
def test_an_entry_that_differs_from_the_log(
    store: Path, damage: Callable[[Path], None], offset: int, count: int
) -> None:
    file = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    damage(file)
    assert places(store) == [(Kind.QUEUE_ENTRY, offset, count)]
    assert looked_at(store).findings[0].path == str(file)


def test_a_queue_ahead_of_the_log(store: Path) -> None:
    file = max((store / "consumequeue" / "orders" / "7").iterdir())
    put_at(file, 20, file.read_bytes()[:20] * 2)
    assert places(store) == [(Kind.QUEUE_END, 1, 2)]


def test_index_entries_of_no_record(store: Path) -> None:
    file = min((store / "index").iterdir())
    entries = 40 + 4 * CONFIG.index_slots
    place = int.from_bytes(file.read_bytes()[entries + 20 * 5 + 4 :][:8], "big")
    put_at(file, entries + 20 * 5 + 4, (123456).to_bytes(8, "big"))
    put_at(file, entries + 20 * 9 + 16, (70).to_bytes(4, "big"))  # the one before it would come later
    gap = (Kind.INDEX_GAP, place, 1)  # the fifth key, whose entry names no record now
    assert places(store) == [(Kind.INDEX_ENTRY, 5, 1), (Kind.INDEX_ENTRY, 9, 1), gap]


def test_an_index_file_that_makes_no_sense_is_found_and_no_store_refused(store: Path, tmp_path: Path) -> None:
    file = min((store / "index").iterdir())
    file.write_bytes(file.read_bytes()[:-3])
    assert Kind.INDEX_FILE in {kind for kind, _, _ in places(store)}
    with pytest.raises(NotAStoreError):
        verify(tmp_path)


def numbered(path: Path, *stated: int, segment_bytes: int = 1 << 16) -> list[int]:
    """A store of messages whose headers state these queue offsets; their physical offsets."""
    config = replace(CONFIG, record_crc=False, segment_bytes=segment_bytes)
    with MessageStore.open(path, config) as opened:
        got = [opened.append(Outgoing(topic="T", body=b"body", keys="k")).physical_offset for _ in stated]
    for at, number in zip(got, stated, strict=True):
        overwrite(path, at + 20, number.to_bytes(8, "big", signed=True))
    return got


@pytest.mark.scaled(quick=23)
@pytest.mark.parametrize("row", [0, 1, 5, 8, 9])
@pytest.mark.parametrize("stated", [-1, 0, 3, 4, 7, 10, 11, 1 << 40])
@pytest.mark.parametrize("segment_bytes", [1 << 10, 1 << 16])
@pytest.mark.parametrize("has_queues", [True, False])
def test_a_damaged_queue_offset_in_a_header_is_found(
    tmp_path: Path, row: int, stated: int, segment_bytes: int, has_queues: bool
) -> None:
    numbers = [*range(10)]
    numbers[row] = stated
    at = numbered(tmp_path / "s", *numbers, segment_bytes=segment_bytes)[row]
    if not has_queues:
        shutil.rmtree(tmp_path / "s" / "consumequeue")
    of_log = {Kind.QUEUE_OFFSET, Kind.LEFT_OUT, Kind.OFFSET_UNKNOWN}
    kinds = {each.kind for each in verify(tmp_path / "s").findings if each.offset == at} & of_log
    if row < 9 or stated < 0 or stated > 20 or (has_queues and stated < 9):
        expected = Kind.QUEUE_OFFSET
    elif stated < 9:  # as if it had been stored twice
        expected = Kind.LEFT_OUT
    else:  # as if numbers had been skipped
        expected = Kind.OFFSET_UNKNOWN
    assert kinds == {expected} - ({expected} if row == stated else set())


def test_numbers_that_a_broker_skipped_are_not_damage(tmp_path: Path) -> None:
    for name, numbers in (("one", [0, 1, 2, 4, 5, 6]), ("two", [0, 1, 2, 7, 8, 15])):
        numbered(tmp_path / name, *numbers)
        report = verify(tmp_path / name)
        assert report.is_sound
        assert {each.kind for each in report.findings} == ({Kind.OFFSET_UNKNOWN} if name == "two" else set())
    numbered(tmp_path / "later", *range(7), *range(9, 30), segment_bytes=1 << 10)
    assert verify(tmp_path / "later").findings == ()


def test_addresses_in_the_queue_extension_are_not_damage(tmp_path: Path) -> None:
    report = verify(fixtures.unpack("cq-ext-4.9.1", tmp_path))
    assert report.is_sound
    assert report.entries == report.records == 300


def test_bytes_after_the_last_record_are_one_finding(store: Path) -> None:
    with MessageStore.open(store, CONFIG) as opened:
        end = opened.end_offset
    segment = segments(store)[-1]
    base = int(segment.name)
    stale = segment.read_bytes()[:200]  # records of another place, as a broker with writeWithoutMmap leaves them
    put_at(segment, end - base, stale)
    ((kind, start, count),) = places(store)
    assert (kind, start) == (Kind.LOG_DAMAGE, end)
    assert 0 < count <= 200
