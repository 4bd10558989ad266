import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentlog.store import (
    ConfigError,
    CorruptError,
    DataLossError,
    MessageStore,
    OnLoss,
    QueueKey,
    QueueRange,
    ScanSpec,
    Snapshot,
)
from segmentlog.store.archive.look import verify
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.errors import StoreIOError
from segmentlog.store.format.message import Bytes
from segmentlog.store.objects import manifests
from segmentlog.store.objects.manifests import newest, newest_or_empty
from segmentlog.store.objects.object_store import ObjectInfo
from segmentlog.store.objects.opening import open_objects
from support import archives
from support.archived_store import CONFIG, append_rows, write_whole
from support.faulty_objects import Fault, FaultyObjects, Killed
from support.memory_objects import MemoryObjects
from support.scale import scale, spread
from support.tampering import overwrite

ROWS = 150
SEGMENT = CONFIG.segment_bytes


def grow(store: Path, first: int = ROWS, count: int = 60) -> None:
    with MessageStore.open(store, CONFIG) as opened:
        append_rows(opened, first, count)


def content(objects: MemoryObjects) -> dict[str, Any]:
    found = archives.content(objects)
    named = {key: objects.objects[key][0] for key in found.names}
    kept = {key: data for key, data in named.items() if not key.startswith(("files/", "parts/"))}
    return {"pieces": found.pieces, "queues": found.part.queues, "runs": found.runs.tolist(), "objects": kept}


def archived_log(objects: MemoryObjects) -> bytes:
    return b"".join(objects.objects[each.key][0] for piece in archives.content(objects).pieces for each in piece.ranges)


def log_of(store: Path) -> bytes:
    snapshot = Snapshot.open(store)
    whole = b"".join(Path(segment.path).read_bytes() for segment in snapshot.log.segments)
    return whole[: snapshot.readable_stop() - snapshot.log.min_offset]


def is_sound(objects: MemoryObjects) -> bool:
    found = verify(objects, deep=True)
    assert found.findings == ()
    return found.is_sound


# Archived content


def test_a_first_push_has_all_segments(store: Path) -> None:
    """Packs and runs of queues are read by `format/plain_archive_reader.py`."""
    objects = MemoryObjects()
    report = push(store, objects)
    number = newest(objects)[0]
    assert (number, report.manifest, report.records, report.is_complete) == (1, 1, ROWS, True)
    assert archived_log(objects) == log_of(store)
    assert is_sound(objects)


def test_a_repeated_push_sends_nothing_and_writes_no_manifest(store: Path, objects: FaultyObjects) -> None:
    before = dict(objects.objects)
    report = push(store, objects)
    assert (report.pieces, report.sent_bytes, report.manifest) == (0, 0, 1)
    assert objects.objects == before


def test_pushes_beside_a_writer_add_pieces_of_the_growing_segment(store: Path, objects: FaultyObjects) -> None:
    first = archives.content(objects).pieces
    with MessageStore.open(store, CONFIG) as opened:
        for at in range(ROWS, ROWS + 90, 15):
            append_rows(opened, at, 15)
            assert push(store, objects).records == 15
            assert archived_log(objects) == log_of(store)
    last = archives.content(objects)
    assert last.pieces[: len(first) - 1] == first[:-1]
    assert is_sound(objects)
    assert all(piece.start != piece.stop for piece in last.pieces)


def test_configuration_and_state_are_archived(store: Path, objects: FaultyObjects) -> None:
    files = {file.path: objects.objects[file.key][0] for file in newest(objects)[1].files}
    assert files["config/topics.json"] == (store / "config" / "topics.json").read_bytes()
    assert {".segmentlog/id", "checkpoint"} <= files.keys()
    assert not {"lock", "abort"} & files.keys()
    assert any(path.startswith("index/") for path in files)


def test_a_torn_document_is_replaced_by_its_backup_or_left_out_with_a_warning(store: Path) -> None:
    objects = MemoryObjects()
    document = store / "config" / "topics.json"
    whole = document.read_bytes()
    document.with_name("topics.json.bak").write_bytes(whole)
    document.write_bytes(whole[:20])
    (warning,) = push(store, objects).warnings
    assert warning.startswith("config/topics.json, of 2")
    assert "is damaged: its backup of 2" in warning
    files = {file.path: objects.objects[file.key][0] for file in newest(objects)[1].files}
    assert files["config/topics.json"] == whole
    document.with_name("topics.json.bak").unlink()
    assert "topics.json is not archived" in push(store, MemoryObjects()).warnings[0]


@pytest.mark.parametrize("counts", ["consumerOffset.json", "lmqConsumerOffset.json"])
def test_of_two_documents_of_group_offsets_the_one_that_brokers_read_is_archived(store: Path, counts: str) -> None:
    """A plain broker goes on with its old version, so that only the times of the files tell."""
    for name, version in (("consumerOffset.json", 1), ("lmqConsumerOffset.json", 2)):
        file = store / "config" / name
        file.write_text(f'{{"dataVersion":{{"timestamp":{version}}},"offsetTable":{{}}}}')
        if name != counts:
            os.utime(file, (1, 1))
    objects = MemoryObjects()
    push(store, objects)
    files = {file.path for file in newest(objects)[1].files}
    assert {path for path in files if path.endswith("Offset.json")} == {f"config/{counts}"}


# Whose archive


def test_an_archive_of_another_store_is_refused(store: Path, objects: FaultyObjects, tmp_path: Path) -> None:
    before = dict(objects.objects)
    with pytest.raises(ConfigError, match="archive of store"):
        push(write_whole(tmp_path / "other", ROWS), objects)
    other = tmp_path / "other" / ".segmentlog" / "id"
    other.unlink()
    append_to_front(tmp_path / "other")
    with pytest.raises(ConfigError, match="not the log of this store"):
        push(tmp_path / "other", objects)
    assert objects.objects == before


def append_to_front(store: Path) -> None:
    """Make the log another one, with the same sizes."""
    for each in (store / "commitlog").iterdir():
        data = each.read_bytes()
        each.write_bytes(data.replace(b"body", b"corp"))


def test_an_empty_store_is_not_pushed_over_an_archive(store: Path, objects: FaultyObjects) -> None:
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()
    with pytest.raises(ConfigError, match="not the log of this store"):
        push(store, objects)


# The log changed


def cut_and_rewrite(store: Path, base: Path, more: int) -> None:
    """Replace a store by an earlier copy of it that went on differently."""
    shutil.rmtree(store)
    shutil.copytree(base, store)
    with MessageStore.open(store, CONFIG) as opened:
        append_rows(opened, 5_000, more)


@pytest.mark.parametrize("more", [0, 7, 200])
def test_pieces_that_a_failover_cut_off_are_replaced_with_a_warning(
    store: Path, objects: FaultyObjects, tmp_path: Path, more: int
) -> None:
    shutil.copytree(store, tmp_path / "base")
    kept = newest(objects)[1].stop
    grow(store)
    push(store, objects)
    stop = newest(objects)[1].stop
    cut_and_rewrite(store, tmp_path / "base", more)
    report = push(store, objects)
    assert report.replaced is not None
    assert kept - kept % SEGMENT <= report.replaced[0] < report.replaced[1] == stop  # pieces of a full segment are one
    assert not report.is_complete
    assert "was cut" in report.warnings[0]
    assert archived_log(objects) == log_of(store)
    assert is_sound(objects)
    assert push(store, objects).is_complete


@pytest.mark.parametrize("inside", ["", "/archive", "/../store/archive"])
def test_a_place_within_the_store_is_refused(store: Path, inside: str) -> None:
    before = sorted(store.rglob("*"))
    with pytest.raises(ConfigError, match="have to be beside each other"):
        push(store, open_objects(f"file://{store}{inside}"))
    assert sorted(store.rglob("*")) == before


def test_a_cut_within_the_only_piece_of_a_segment_is_found_by_its_first_bytes(store: Path, tmp_path: Path) -> None:
    small = write_whole(tmp_path / "small", 10)
    shutil.copytree(small, tmp_path / "base")
    grow(small, 10, 10)
    objects = MemoryObjects()
    push(small, objects)
    cut_and_rewrite(small, tmp_path / "base", 5)
    assert push(small, objects).replaced is not None
    assert archived_log(objects) == log_of(small)


def test_segments_that_retention_deleted_stay_in_the_archive(store: Path) -> None:
    objects = MemoryObjects()
    whole = log_of(store)
    push(store, objects)
    for name in sorted(os.listdir(store / "commitlog"))[:2]:
        (store / "commitlog" / name).unlink()
    report = push(store, objects)
    assert (report.gaps, report.is_complete, report.start) == ((), True, 0)
    assert archived_log(objects) == whole


def test_a_log_that_begins_beyond_the_archive_is_a_gap_that_is_reported_once(
    store: Path, objects: FaultyObjects
) -> None:
    stop = newest(objects)[1].stop
    grow(store, ROWS, 200)
    for each in sorted((store / "commitlog").iterdir())[: stop // SEGMENT + 2]:
        each.unlink()
    start = Snapshot.open(store).log.min_offset
    report = push(store, objects)
    assert (report.gaps, report.is_complete) == (((stop, start),), False)
    assert "retention deleted" in report.warnings[0]
    assert push(store, objects).is_complete
    assert is_sound(objects)


def test_messages_that_no_push_has_are_reported_by_each_read_of_their_offsets(
    store: Path, objects: FaultyObjects, caplog: pytest.LogCaptureFixture
) -> None:
    key = QueueKey("orders", 0)
    end = Snapshot.open(store).bounds_of([key])[0].max_offset
    grow(store, ROWS, 200)
    stop = newest(objects)[1].stop
    for each in sorted((store / "commitlog").iterdir())[: stop // SEGMENT + 2]:
        each.unlink()
    push(store, objects)
    archived = Snapshot.open(StoreLocation.on_objects(objects))
    (found,) = archived.entries.deleted([QueueRange(key, 0, archived.bounds_of([key])[0].max_offset)])
    assert found.start == end
    assert archived.entries.place_of(key, found.stop) is not None
    asked = [QueueRange(key, end - 1, found.stop + 1)]
    fails = ScanSpec(columns=("queueOffset",))
    skips = replace(fails, on_loss=OnLoss.SKIP)
    for wanted in ([found], asked, [QueueRange(key, found.start + 1, found.stop - 1)]):
        for read in (archived.count, partial(archived.plan, max_bytes=1 << 20)):
            with pytest.raises(DataLossError, match=r"messages of orders/0, offsets .* are not in the archive"):
                read(wanted, spec=fails)
    for each in (QueueRange(key, 0, end), QueueRange(key, found.stop, found.stop + 1)):
        assert sum(task.rows for task in archived.plan([each], max_bytes=1 << 20, spec=fails)) == len(each)
    caplog.clear()
    assert archived.count(asked, skips) == 2
    assert sum(task.rows for task in archived.plan(asked, max_bytes=1 << 20, spec=skips)) == 2
    assert f"{len(found)} messages of orders/0" in caplog.text
    tasks = archived.plan(asked, max_bytes=1 << 20, spec=skips)
    rows = [row for task in tasks for batch in archived.scan(task, skips) for row in batch.to_pylist()]
    assert rows == [{"queueOffset": end - 1}, {"queueOffset": found.stop}]


# Damage


def first_body(store: Path) -> tuple[Path, int]:
    segment = sorted((store / "commitlog").iterdir())[1]
    return segment, segment.read_bytes().index(b"body ") + 1


def test_damage_is_an_error_with_its_place_and_can_be_archived_as_it_is(store: Path) -> None:
    segment, at = first_body(store)
    overwrite(store, SEGMENT + at, b"\xff")
    objects = MemoryObjects()
    with pytest.raises(CorruptError, match="contradicts") as caught:
        push(store, objects)
    assert (caught.value.path, caught.value.offset) == (str(segment), SEGMENT)
    assert newest_or_empty(objects)[0] == 0
    assert "keep_damage=True" in str(caught.value)
    report = push(store, objects, keep_damage=True)
    assert (len(report.damage), report.is_complete) == (1, False)
    assert archived_log(objects) == log_of(store)
    assert is_sound(objects)  # the damage is known
    assert push(store, MemoryObjects(), check_crcs=False).is_complete


@pytest.mark.parametrize("damage", [b"\0" * 8, b"\xff" * 200])
def test_a_lost_record_and_a_missing_segment_are_damage(store: Path, damage: bytes) -> None:
    segment, _ = first_body(store)
    overwrite(store, SEGMENT, damage)
    with pytest.raises(CorruptError):
        push(store, MemoryObjects())
    segment.unlink()
    with pytest.raises(CorruptError, match="segment is missing"):
        push(store, MemoryObjects())
    report = push(store, MemoryObjects(), keep_damage=True)
    assert report.damage == ((SEGMENT, 2 * SEGMENT),)


class Rewrites(MemoryObjects):
    """The log is written again while a piece is sent."""

    store = Path()

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        if key.startswith("log/00000000000000004096"):
            overwrite(self.store, SEGMENT + 100, b"\xff")
        return super().put(key, data, if_absent=if_absent)


def test_a_log_that_changes_while_it_is_sent_is_an_error_and_leaves_no_object(store: Path) -> None:
    objects = Rewrites()
    objects.store = store
    with pytest.raises(StoreIOError, match="changed while it was archived"):
        push(store, objects)
    assert not any(key.startswith("log/00000000000000004096") for key in objects.objects)


class ReportsOtherSizes(MemoryObjects):
    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        info = super().put(key, data, if_absent=if_absent)
        return None if info is None else info._replace(size=info.size + 1)


def test_an_upload_of_another_size_is_an_error(store: Path) -> None:
    with pytest.raises(StoreIOError, match="the object store reports"):
        push(store, ReportsOtherSizes())


# Two archivers, and orphans


class OtherWins(FaultyObjects):
    """Another archiver publishes before each of the first publications of this one."""

    store = Path()
    losses = 2

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        if if_absent and self.losses:
            self.losses -= 1
            grow(self.store, 900 + 40 * self.losses, 40)
            plain = MemoryObjects()
            plain.objects = self.objects
            push(self.store, plain)
            grow(self.store, 800 + 5 * self.losses, 5)
        return super().put(key, data, if_absent=if_absent)


def test_the_loser_of_two_archivers_continues_from_the_manifest_of_the_winner(store: Path) -> None:
    objects = OtherWins()
    objects.store = store
    report = push(store, objects)
    assert report.manifest == newest(objects)[0] == 3
    assert archived_log(objects) == log_of(store)
    assert is_sound(objects)


@pytest.mark.parametrize("library", ["obstore", "pyarrow"])
def test_the_directory_of_an_archive_has_at_most_the_permissions_of_its_store(
    store: Path, tmp_path: Path, library: str
) -> None:
    tmp_path.chmod(0o755)
    store.chmod(0o700)
    push(store, open_objects(f"file://{tmp_path}/above/archive", {"library": library}))
    assert (tmp_path / "above/archive").stat().st_mode & 0o777 == 0o700
    (tmp_path / "given").mkdir(0o755)
    push(store, open_objects(f"file://{tmp_path}/given", {"library": library}))
    assert (tmp_path / "given").stat().st_mode & 0o777 == 0o755


def test_orphans_are_deleted_once_they_are_old_and_named_objects_never(store: Path) -> None:
    objects = FaultyObjects()
    for orphan in ("log/00000000000000000000/orphan", ".probe-orphan"):
        objects.put(orphan, np.zeros(3, np.uint8))
    push(store, objects)
    assert any(key.endswith("orphan") for key in objects.objects)
    before = set(objects.objects)
    report = push(store, objects, orphans_after_s=0)
    assert (report.removed, before - set(objects.objects)) == (2, {"log/00000000000000000000/orphan", ".probe-orphan"})
    assert is_sound(objects)


def test_a_damaged_older_manifest_keeps_all_objects_and_the_push_succeeds(store: Path, objects: FaultyObjects) -> None:
    data, info = objects.objects["manifests/0000000001.arrow"]
    grow(store)
    push(store, objects)
    objects.objects["manifests/0000000001.arrow"] = data[:-1] + b"?", info
    objects.put("log/00000000000000000000/orphan", np.zeros(3, np.uint8))
    report = push(store, objects, orphans_after_s=0)
    assert (report.removed, report.is_complete) == (0, True)
    assert "no object was deleted" in report.warnings[0]


# Faults


def cases(count: int, chosen: int) -> Iterator[tuple[int, Fault]]:
    for number in sorted(spread(4 * count, chosen)):
        yield number // 4, list(Fault)[number % 4]


@pytest.mark.scaled
@pytest.mark.slow
def test_a_fault_or_kill_at_any_call_loses_nothing_and_the_next_push_ends_alike(store: Path) -> None:
    base = FaultyObjects()
    base.put("log/00000000000000000000/orphan", np.zeros(3, np.uint8))
    push(store, base)
    former = content(base)
    grow(store, count=scale(60, 150, 600))
    expected = FaultyObjects.copy(base)
    push(store, expected, orphans_after_s=0)
    for at, fault in cases(expected.count, scale(12, 200, 4 * expected.count)):
        objects = FaultyObjects.copy(base, fault, at)
        with contextlib.suppress(StoreIOError, Killed):
            push(store, objects, orphans_after_s=0 if at % 2 else 86_400)
        plain = MemoryObjects()
        plain.objects = objects.objects
        _, first = next(manifests.listed(plain))
        assert archives.of_manifest(plain, manifests.read(plain, first)).pieces == former["pieces"]
        for _, info in manifests.listed(plain):
            named = archives.of_manifest(plain, manifests.read(plain, info)).names
            assert all(len(objects.objects[key][0]) == size for key, size in named.items()), (at, fault)
        push(store, plain)  # the fault is still to come if the push made fewer calls
        assert content(plain) == content(expected), (at, fault)


def test_objects_of_an_interrupted_push_are_used_again(store: Path) -> None:
    objects = FaultyObjects(Fault.KILL_AFTER, 12)
    with pytest.raises(Killed):
        push(store, objects)
    left = len(objects.objects)
    assert left > 1
    assert push(store, objects).reused >= left - 1


def test_compacted_topics_are_named_that_an_archive_does_not_have(store: Path, objects: FaultyObjects) -> None:
    (store / "compaction" / "compactionLog").mkdir(parents=True)
    assert push(store, objects).warnings == ()
    (store / "compaction" / "compactionLog" / "Prices" / "0").mkdir(parents=True)
    (warning,) = push(store, objects).warnings
    assert warning == "compaction/ is not archived: consumers of a restored broker get no messages of Prices"


def test_segments_in_an_unnamed_directory_are_refused_or_named_in_a_warning(store: Path, tmp_path: Path) -> None:
    whole, other = log_of(store), tmp_path / "other"
    other.mkdir()
    *_, before, last = sorted((store / "commitlog").iterdir())
    last.rename(other / last.name)
    (warning,) = push(store, MemoryObjects()).warnings
    assert "the log ends too early" in warning
    assert "storePathCommitLog" in warning
    before.rename(other / before.name)
    (other / last.name).rename(last)
    with pytest.raises(CorruptError, match=r"segment is missing.* commit_log_paths names"):
        push(store, MemoryObjects())
    objects = MemoryObjects()
    assert push(store, objects, commit_log_paths=[store / "commitlog", other]).warnings == ()
    assert archived_log(objects) == whole[: len(archived_log(objects))]
    assert is_sound(objects)
