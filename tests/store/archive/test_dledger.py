"""Archives of DLedger stores: bytes that a group has agreed on, pushed while brokers write, fall behind and fail over.

`conformance/test_dledger.py` pushes stores of RocketMQ.
"""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import ConfigError, QueueSource, Snapshot, UnsupportedStoreError
from segmentlog.store.archive.look import verify
from segmentlog.store.archive.prune import prune
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.find import Finder
from segmentlog.store.format import archive_manifest
from segmentlog.store.format.message import blank_record
from segmentlog.store.maintenance.archives import pull
from segmentlog.store.objects.manifests import newest
from segmentlog.store.objects.opening import open_objects
from segmentlog.store.read.queue_watch import QueueWatch
from support import archives
from support.archived_store import all_rows
from support.dledger import Entry, entries_of, records_of, write_log, write_store
from support.memory_objects import MemoryObjects
from support.tampering import overwrite

SEGMENT = 4096


def archived(objects: MemoryObjects) -> Snapshot:
    return Snapshot.open(StoreLocation.on_objects(objects))


def state(store: Path, committed: int) -> None:
    (store / "dledger-n0" / "checkpoint").write_text(f"committedIndex={committed}\n")


def led(entries: list[Entry], tmp_path: Path, count: int, kept: int) -> list[Entry]:
    """The entries of a new leader that had ``kept`` of them."""
    others, _ = records_of(tmp_path / "others", range(count), "later")
    found = entries_of([each.record for each in entries[:kept]] + others[kept:], SEGMENT)
    assert found[:kept] == entries[:kept]
    return [replace(each, term=1 if each.index < kept else 2) for each in found]


def check(objects: MemoryObjects, store: Path) -> None:
    assert verify(objects, deep=True).findings == ()
    assert all_rows(archived(objects)) == all_rows(Snapshot.open(store))


def test_a_leader_change_between_two_pushes_changes_no_archived_byte(tmp_path: Path) -> None:
    store, objects = tmp_path / "store", MemoryObjects()
    entries = write_store(store, committed=40)
    first = push(store, objects)
    assert (first.stop, first.records, first.is_complete) == (entries[40].stop, 41, True)
    watch = QueueWatch(archived(objects), lambda _: True, lambda _: True, clock=itertools.count(10, 10).__next__)
    assert len(watch.look().moved) == 3
    before = {key: data for key, (data, _) in objects.objects.items() if key.startswith("log/")}

    # The new leader has 45 entries; the others are written over, and their last ones stay behind its first ones.
    new = led(entries, tmp_path, 100, kept=45)
    write_log(store, new[:50], SEGMENT, committed=47)
    second = push(store, objects)
    assert (second.start, second.stop, second.is_complete) == (0, new[47].stop, True)
    check(objects, store)
    write_log(store, new, SEGMENT, committed=99)
    third = push(store, objects)
    assert (third.stop, third.is_complete) == (new[99].stop, True)
    check(objects, store)
    keys = {row["keys"] for row in all_rows(archived(objects))}
    assert keys == {*(f"k{number}" for number in range(45)), *(f"later{number}" for number in range(45, 100))}
    assert before.items() <= {key: data for key, (data, _) in objects.objects.items()}.items()
    sighting = watch.look()
    assert not sighting.rewritten
    assert len(sighting.moved) == 3


@pytest.mark.parametrize("committed", [-1, 5, 30])
def test_a_broker_that_is_behind_its_archive_adds_and_takes_away_nothing(committed: int, tmp_path: Path) -> None:
    store, objects = tmp_path / "store", MemoryObjects()
    entries = write_store(store)
    report = push(store, objects)
    state(store, committed)
    assert push(store, objects) == replace(report, pieces=0, records=0, sent_bytes=0)
    state(store, 59)
    assert push(store, objects).manifest == report.manifest

    # Another broker of the group, whose log is shorter.
    other = tmp_path / "other"
    shutil.copytree(store, other)
    shutil.rmtree(other / "dledger-n0")
    write_log(other, entries[:12], SEGMENT, 10).rename(other / "dledger-n1")
    assert push(other, objects) == replace(report, pieces=0, records=0, sent_bytes=0)
    (other / "dledger-n1" / "checkpoint").write_text("committedIndex=-1")
    assert push(other, objects).manifest == report.manifest
    shutil.rmtree(other / "dledger-n1" / "data")
    assert push(other, objects).manifest == report.manifest
    shutil.rmtree(other / "dledger-n1")
    (other / "commitlog").mkdir()
    assert push(other, objects).manifest == report.manifest
    (other / "commitlog").rmdir()
    longer = led(entries, tmp_path, 90, kept=60)
    write_log(other, longer, SEGMENT, 89).rename(other / "dledger-n1")
    grown = push(other, objects)
    assert (grown.stop, grown.records, grown.is_complete) == (longer[89].stop, 30, True)
    check(objects, other)


def test_a_store_of_another_group_is_refused(tmp_path: Path) -> None:
    objects = MemoryObjects()
    write_store(tmp_path / "store")
    number = push(tmp_path / "store", objects).manifest
    records, _ = records_of(tmp_path / "others", range(100), "other")
    for count in (5, 30, 100):
        shutil.copytree(tmp_path / "store", tmp_path / str(count))
        shutil.rmtree(tmp_path / str(count) / "dledger-n0")
        write_log(tmp_path / str(count), entries_of(records, SEGMENT)[:count], SEGMENT, count - 1)
        with pytest.raises(ConfigError, match="is not the log of this store"):
            push(tmp_path / str(count), objects)
    state(tmp_path / "5", -1)
    assert push(tmp_path / "5", objects).manifest == number


def test_a_release_that_does_not_know_the_log_refuses_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = MemoryObjects()
    write_store(tmp_path / "store")
    push(tmp_path / "store", objects)
    monkeypatch.setattr(archive_manifest, "FEATURES", frozenset())
    with pytest.raises(UnsupportedStoreError, match="needs a reader of format 2 with 'dledger'"):
        archived(objects)


@pytest.mark.parametrize("queue_source", [QueueSource.AUTO, QueueSource.COMMIT_LOG])
def test_a_store_whose_front_is_deleted_continues_in_its_archive(queue_source: QueueSource, tmp_path: Path) -> None:
    store, whole, archive = tmp_path / "store", tmp_path / "whole", f"file://{tmp_path}/archive"
    entries = write_store(whole)
    push(whole, open_objects(archive))
    new = led(entries, tmp_path, 100, kept=60)
    write_log(whole, new, SEGMENT, committed=95)
    shutil.copytree(whole, store)
    for path in sorted((store / "dledger-n0" / "data").iterdir())[:2]:
        path.unlink()
    expected = Snapshot.open(whole)
    both = Snapshot.open(store, archive=tmp_path / "archive", queue_source=queue_source)
    assert (both.log.min_offset, both.log.data_stop()) == (0, new[95].stop)
    assert all_rows(both) == all_rows(expected)
    found, wanted = (Finder(each).by_keys(["orders"], ["k3", "k59", "later95", "later96"]) for each in (both, expected))
    assert found.physical_offset.tolist() == wanted.physical_offset.tolist()
    assert found.physical_offset.size == 3
    write_store(tmp_path / "other")
    with pytest.raises(ConfigError, match="differs from that of the store"):
        Snapshot.open(tmp_path / "other", archive=tmp_path / "archive")


def test_an_archive_of_a_store_that_was_changed_to_dledger_is_followed(tmp_path: Path) -> None:
    store, objects = tmp_path / "store", MemoryObjects()
    records_of(store, range(30))
    older = push(store, objects)
    assert newest(objects)[1].dledger_id is None
    watch = QueueWatch(archived(objects), lambda _: True, lambda _: True, clock=itertools.count(10, 10).__next__)
    watch.look()
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()
    overwrite(store, older.stop, blank_record(SEGMENT - older.stop % SEGMENT))  # as RocketMQ ends it
    others, _ = records_of(tmp_path / "others", range(70))
    base = SEGMENT * len([*(store / "commitlog").iterdir()])
    entries = entries_of(others[30:], SEGMENT, base)
    write_log(store, entries, SEGMENT, 39)
    report = push(store, objects)
    assert (report.records, report.stop) == (len(entries), entries[-1].stop)
    check(objects, store)
    assert newest(objects)[1].dledger_id == "n0"
    assert len(watch.look().moved) == 3
    assert all_rows(watch.snapshot) == all_rows(Snapshot.open(store))
    assert watch.snapshot.message_at(entries[5].position + 48) is not None


def test_a_dledger_archive_is_pruned_and_restored(tmp_path: Path) -> None:
    objects = MemoryObjects()
    write_store(tmp_path / "store")
    (tmp_path / "store").chmod(0o700)
    push(tmp_path / "store", objects)
    whole = all_rows(archived(objects))
    report = prune(objects, None, max_bytes=2 * SEGMENT)
    assert report.pieces > 0
    left = archives.content(objects)
    assert {piece.lead for piece in left.pieces} == {48}
    assert all_rows(archived(objects)) == [row for row in whole if row["physicalOffset"] >= report.start]
    assert push(tmp_path / "store", objects).manifest == report.manifest
    pull(objects, tmp_path / "restored")
    assert all_rows(Snapshot.open(tmp_path / "restored")) == all_rows(archived(objects))
    made = [tmp_path / "restored", *(tmp_path / "restored").rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in made} == {0}
