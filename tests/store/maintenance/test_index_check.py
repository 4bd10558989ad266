import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import MessageStore, Outgoing, Snapshot
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.index_file import ENTRY, HEADER
from segmentlog.store.maintenance import Finding, Kind, verify
from segmentlog.store.maintenance.index_check import IndexCheck, IndexPart
from support import fixtures, releases
from support.commands import run_command
from support.small_store import CONFIG, ROWS
from support.tampering import put_at, segments

ENTRIES_AT = HEADER.itemsize + 4 * CONFIG.index_slots


def gaps(path: Path) -> list[Finding]:
    return [finding for finding in verify(path).findings if finding.kind is Kind.INDEX_GAP]


def index_files(path: Path) -> list[Path]:
    return sorted((path / "index").iterdir())


def set_count(file: Path, count: int) -> None:
    put_at(file, HEADER.itemsize - 4, count.to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("damage", "keys"),
    [
        (lambda files: [file.unlink() for file in files], ROWS),
        (lambda files: files[0].unlink(), 79),
        (lambda files: files[-1].unlink(), ROWS - 3 * 79),
        (lambda files: set_count(files[-1], 11), ROWS - 3 * 79 - 10),
    ],
)
def test_keys_that_are_missing_are_one_gap(store: Path, damage: Callable[[list[Path]], object], keys: int) -> None:
    assert not gaps(store)
    assert len(segments(store)) > 2
    last = segments(store)[-1]
    damage(index_files(store))
    (gap,) = gaps(store)
    assert (gap.path, gap.count) == (str(store / "index"), keys)
    assert gap.offset == 0 or gap.offset > 79 * 100
    assert verify(store).keys == ROWS - keys
    assert int(last.name) > 0


def test_single_entries_of_other_keys_are_gaps_of_their_own(store: Path) -> None:
    first = index_files(store)[0]
    for number in (3, 4, 9):
        put_at(first, ENTRIES_AT + 20 * number, (number * 7919).to_bytes(4, "big"))
    places = [int.from_bytes(first.read_bytes()[ENTRIES_AT + 20 * number + 4 :][:8], "big") for number in (3, 9)]
    assert [(gap.offset, gap.count) for gap in gaps(store)] == [(places[0], 2), (places[1], 1)]


@pytest.mark.parametrize(
    ("name", "place", "data", "kind"),
    [
        ("slot without its entries", HEADER.itemsize + 4 * 7, 0, Kind.INDEX_SLOT),
        ("slot of an older entry", HEADER.itemsize + 4 * 7, 3, Kind.INDEX_SLOT),
        ("slot beyond the entries", HEADER.itemsize + 4 * 7, 99, Kind.INDEX_SLOT),
        ("entry that cuts its chain", ENTRIES_AT + 20 * 50 + 16, 0, Kind.INDEX_ENTRY),
        ("entry of another slot", ENTRIES_AT + 20 * 50 + 16, 49, Kind.INDEX_ENTRY),
        ("begin time", 4, 17, Kind.INDEX_FILE),
        ("end time", 12, 17, Kind.INDEX_FILE),
        ("begin offset", 20, 17, Kind.INDEX_FILE),
        ("end offset", 28, 17, Kind.INDEX_FILE),
        ("used slots", 32, 17, Kind.INDEX_FILE),
    ],
)
def test_chains_and_headers_are_checked_unless_their_file_is_not_closed(
    store: Path, name: str, place: int, data: int, kind: Kind
) -> None:
    *_, full, newest = index_files(store)
    for file, is_closed in ((newest, True), (full, False), (newest, False)):
        content = file.read_bytes()
        put_at(file, place, data.to_bytes(4, "big"))
        if not is_closed:
            (store / "abort").write_text("1")
        findings = [each for each in verify(store).findings if each.kind is kind]
        expected = [] if file is newest and not is_closed else [str(file)]
        assert [each.path for each in findings][:1] == expected, name
        file.write_bytes(content)
    (store / "abort").unlink()
    assert verify(store).findings == ()


def test_keys_of_a_damaged_record_are_not_missed(store: Path) -> None:
    place = segments(store)[0].read_bytes().index(b"\1k7\2")
    put_at(segments(store)[0], place, b"\1k_\2")  # its CRC is wrong: whether it had this key is unknown
    assert Kind.INDEX_GAP not in {finding.kind for finding in verify(store).findings}


def test_missing_keys_at_the_end_of_the_index_are_allowed_in_a_live_store(store: Path) -> None:
    (index_files(store)[-1]).unlink()
    snapshot = Snapshot.open(store)
    fs = LocalFileSystem()
    for is_live, lacking in ((True, 0), (False, ROWS - 3 * 79)):
        check = IndexCheck(fs, str(store), snapshot.log, (), is_live=is_live)
        for found in snapshot.log.walk(0, snapshot.log.stop):
            check.add(found)
        assert sum(gap.keys for gap in check.gaps()) == lacking


@pytest.mark.parametrize("index", [True, False])
def test_a_key_repeated_within_a_record_and_a_store_that_states_no_index_have_no_gap(
    tmp_path: Path, index: bool
) -> None:
    with MessageStore.open(tmp_path / "store", replace(CONFIG, index=index)) as opened:
        opened.append(Outgoing(topic="orders", body=b"", keys="k k", uniq_key="k"))
    assert not gaps(tmp_path / "store")
    assert verify(tmp_path / "store").is_sound


# RocketMQ indexed four keys of queues-moved twice when it was started with RocksDB, and three of dledger-mixed-4.9.1
# when it was started with DLedger. After a crash it deletes the newest index file, which DLedger does not make again.
OTHER = ("crash", "empty", "index-deleted", "index-rocksdb", "queues-moved", "dledger-mixed-4.9.1")
LOST = ("dledger-crash", "dledger-uncommitted", "dledger-truncated")
COMPLETE = [name for name in fixtures.names() if not name.startswith((*OTHER, *LOST))]


def _tag_entries(name: str) -> int:
    """Entries that RocketMQ since 5.4 puts into the index for the tags of messages."""
    if not releases.TAG_INDEX.holds(fixtures.about(name)["rocketmq"]):
        return 0
    expected = fixtures.expected(name)
    rolled_back = [m["phyOffset"] for m in expected.records if m["sysFlag"] & 0xC == 0xC]
    records = [m for m in (*expected.messages, *expected.records) if m["phyOffset"] not in rolled_back]
    return len({m["phyOffset"] for m in records if m["tags"]})  # a record of light queues is in several


@pytest.mark.scaled(quick=6)
@pytest.mark.conformance
@pytest.mark.parametrize("name", COMPLETE)
def test_rocketmqs_own_index_lacks_nothing(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    before = verify(store)
    assert Kind.INDEX_GAP not in {finding.kind for finding in before.findings}
    shutil.rmtree(store / "index")
    after = verify(store)
    unknown = sum(finding.count for finding in after.findings if finding.kind is Kind.INDEX_UNKNOWN)
    assert unknown == before.keys - _tag_entries(name)
    assert after.is_sound == before.is_sound  # a broker's index may be off


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["index-deleted-4.9.1", "index-rocksdb-5.5.0"])
def test_a_store_of_rocketmq_without_index_files_is_not_damaged(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    report = verify(store)
    assert [finding.kind for finding in report.findings] == [Kind.INDEX_UNKNOWN]
    assert report.findings[0].count > 100
    assert report.is_sound
    ran = run_command("verify", store)
    assert ran.code == 0
    assert [text in ran.text for text in ("nothing is wrong", "index unknown", "damaged")] == [True, True, False]


class Entries:
    """A block of an index file, in memory."""

    def __init__(self, *entries: tuple[int, int]) -> None:
        self._entries = np.array([(key_hash, place, 0, 0) for key_hash, place in entries], ENTRY)

    def read(self, _: object) -> object:
        return self._entries


@pytest.mark.parametrize(
    ("entries", "is_held"),
    [
        (((5, 10), (9, 10), (7, 40), (9, 40)), True),
        (((9, 10), (5, 10), (9, 40), (7, 40)), True),
        (((5, 10), (9, 10), (7, 40), (9, 41)), False),
        (((5, 10), (9, 11), (7, 40), (9, 40)), False),
        (((5, 10), (9, 10), (8, 40), (9, 40)), False),
        (((5, 10), (9, 10), (6, 40), (7, 40)), True),
    ],
)
def test_each_record_may_have_an_entry_after_its_key(entries: tuple[tuple[int, int], ...], is_held: bool) -> None:
    keys, places = [(np.array([5, 7]), np.array([10, 40]))], np.array([10, 40])
    part = IndexPart(1000, (Entries(*entries),))  # type: ignore[arg-type]
    assert part.holds(LocalFileSystem(), 0, (0, 100), places, keys) == is_held
