import json
import logging
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import (
    ConfigError,
    CorruptRecordError,
    DataLossError,
    MessageStore,
    OnCorrupt,
    OnLoss,
    Outgoing,
    QueueKey,
    QueueRange,
    QueueSource,
    Remedy,
    ScanSpec,
    Snapshot,
    UnsupportedStoreError,
)
from segmentlog.store.format import batch_mark
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.maintenance import Kind, rebuild_queues, salvage, verify
from support.archived_store import write_whole
from support.broker_index import Index, query_index
from support.reading import whole_queues
from support.small_store import CONFIG, ROWS, write_small_store
from support.store_builder import Geometry as StoreGeometry
from support.store_builder import StoreBuilder, messages
from support.tampering import QueueFiles, contents, overwrite, put_at, segments
from support.written_stores import tree

COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "msgId", "body", "tags")


def rows(path: Path, on_corrupt: OnCorrupt = OnCorrupt.FAIL, on_loss: OnLoss = OnLoss.FAIL) -> list[dict[str, Any]]:
    snapshot = Snapshot.open(path)
    spec = ScanSpec(columns=COLUMNS, on_corrupt=on_corrupt, on_loss=on_loss, check_crc=True)
    plan = snapshot.plan(whole_queues(snapshot), max_bytes=1 << 30, spec=spec)
    return sorted(
        (row for task in plan for batch in snapshot.scan(task, spec) for row in batch.to_pylist()),
        key=lambda row: row["physicalOffset"],
    )


def only_lost(path: Path) -> int:
    """Number of lost messages of `verify`, which finds nothing else."""
    findings = verify(path).findings
    assert {finding.kind for finding in findings} <= {Kind.LOST_MESSAGE}
    return sum(finding.count for finding in findings)


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    """A salvaged store that lost message 6, which is (orders, 0) offset 2."""
    put_at(segments(store)[0], segments(store)[0].read_bytes().index(b"body 6 ") - 88, b"\xee" * 8)
    salvage(store, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("columns", [COLUMNS, ("topic", "queueId", "queueOffset", "physicalOffset")])
@pytest.mark.parametrize("source", list(QueueSource))
def test_a_lost_message_is_a_known_loss(
    copy: Path, source: QueueSource, columns: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    snapshot = Snapshot.open(copy, queue_source=source)

    def read(on_loss: OnLoss) -> list[int]:
        spec = ScanSpec(columns=columns, on_loss=on_loss)
        plan = snapshot.plan([QueueRange(QueueKey("orders", 0), 0, 10)], max_bytes=300, spec=spec)
        return [row["queueOffset"] for task in plan for batch in snapshot.scan(task, spec) for row in batch.to_pylist()]

    with pytest.raises(DataLossError, match="1 messages of queue orders/0 are lost, the first at offset 2") as raised:
        read(OnLoss.FAIL)
    assert raised.value.remedies == (Remedy.SKIP_LOST,)
    assert read(OnLoss.SKIP) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert "1 messages of queue orders/0 are lost" in caplog.text


def test_the_copy_has_an_index_lists_its_lost_message_and_is_gone_on_with(store: Path, copy: Path) -> None:
    (finding,) = verify(copy).findings
    assert (finding.kind, finding.offset, finding.count) == (Kind.LOST_MESSAGE, 2, 1)
    assert finding.path == str(copy / "consumequeue" / "orders" / "0" / f"{0:020d}")
    assert verify(copy).entries == verify(copy).keys == salvage(store, copy.parent / "again").keys == ROWS - 1
    asked = Index.open(copy / "index", Geometry(CONFIG.index_slots, CONFIG.index_entries))
    before, held = rows(copy, on_loss=OnLoss.SKIP), tree(copy / "index")
    for row in before:
        key = f"k{bytes(row['body']).split()[1].decode()}"
        assert asked.query(str(row["topic"]), key) == [row["physicalOffset"]]
    with MessageStore.open(copy, CONFIG) as opened:
        assert not opened.recovered.adopted
        assert opened.recovered.dispatched_from == opened.end_offset
        assert query_index(opened, "orders", "k0") == [0]
        assert query_index(opened, "orders", f"k{ROWS - 1}") == [before[-1]["physicalOffset"]]
    assert tree(copy / "index") == held
    with MessageStore.open(copy, CONFIG) as opened:
        at = opened.bounds(QueueKey("orders", 0)).max_offset
        assert opened.append(Outgoing(topic="orders", body=b"more")).queue_offset == at
    assert rows(copy, on_loss=OnLoss.SKIP)[:-1] == before
    assert only_lost(copy) == 1
    with pytest.raises(ConfigError, match="something is there"):
        salvage(store, copy)


def test_a_store_without_an_index_is_copied_without_an_index(tmp_path: Path) -> None:
    config = replace(CONFIG, index=False)
    with MessageStore.open(tmp_path / "store", config) as opened:
        opened.append(Outgoing(topic="orders", body=b"", keys="k"))
    assert verify(tmp_path / "store").is_sound
    assert salvage(tmp_path / "store", tmp_path / "copy").keys == 0
    assert verify(tmp_path / "copy").is_sound
    assert list((tmp_path / "copy").glob("index/*")) == []


def test_a_lost_message_before_the_last_message_leaves_the_queue_end_unchanged(store: Path, tmp_path: Path) -> None:
    whole = rows(store)
    (*_, lost, last) = (row for row in whole if (row["topic"], row["queueId"]) == ("orders", 1))
    overwrite(store, lost["physicalOffset"], b"\xee" * 8)
    salvage(store, tmp_path / "copy")
    with MessageStore.open(tmp_path / "copy", CONFIG) as opened:
        assert opened.bounds(QueueKey("orders", 1)).max_offset == last["queueOffset"] + 1


def test_a_batch_that_was_not_finished_is_left_out(store: Path, tmp_path: Path) -> None:
    before = rows(store)
    with MessageStore.open(store, CONFIG) as opened:
        start = opened.end_offset
        opened.append(Outgoing(topic="orders", body=b"in flight"))
    mark = BatchMark(1, start, start, in_flight=True)
    (store / ".segmentlog" / "batch").write_bytes(batch_mark.encode(mark))
    (store / "abort").write_bytes(b"1 segmentlog\n")
    report = salvage(store, tmp_path / "copy")
    assert (report.records, report.lost_bytes) == (ROWS, 0)
    assert rows(tmp_path / "copy") == before


@pytest.mark.timeout(20)
def test_a_copy_within_its_store_is_refused(tmp_path: Path) -> None:
    source = write_small_store(tmp_path / "source")
    with pytest.raises(ConfigError, match="target: this directory and that of the store have to be beside each other"):
        salvage(source, source / "copy")
    assert not (source / "copy").exists()


def test_only_plain_files_of_the_configuration_are_copied(tmp_path: Path) -> None:
    """A device has no end, a FIFO blocks, and a link leads out of the store."""
    source = write_small_store(tmp_path / "source")
    config = source / "config"
    (config / "sub").mkdir()
    (config / "sub" / "large").write_bytes(b"x" * (9 << 20))
    (config / "empty").touch()
    os.mkfifo(config / "fifo")
    (config / "link").symlink_to("/dev/zero")
    if os.geteuid() == 0:
        os.mknod(config / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    salvage(source, tmp_path / "target")
    copied = {path.name: path for path in (tmp_path / "target" / "config").rglob("*") if not path.is_dir()}
    assert copied.keys() == {path.name for path in config.rglob("*") if stat.S_ISREG(path.lstat().st_mode)}
    assert copied["large"].read_bytes() == b"x" * (9 << 20)
    assert copied["topics.json"].read_bytes() == (config / "topics.json").read_bytes()


@pytest.mark.parametrize(
    ("size", "record_crc"),
    [*((size, False) for size in (*range(92, 99), 116, 117, 400)), *((size, True) for size in (112, 116, 117, 400))],
)
@pytest.mark.parametrize("lost", [[0], [4], [2, 4]])
def test_all_whole_records_beside_damage_are_kept_and_a_second_salvage_changes_nothing(
    tmp_path: Path, size: int, lost: list[int], record_crc: bool
) -> None:
    config = replace(CONFIG, record_crc=record_crc)
    rest = size - 92 - (20 if record_crc else 0)  # header, one letter of topic
    with MessageStore.open(tmp_path / "store", config) as opened:
        got = [opened.append(Outgoing(topic="T", body=b"x" * rest)) for _ in range(6)]
    assert got[1].physical_offset == size
    for row in lost:
        overwrite(tmp_path / "store", got[row].physical_offset, bytes(size))
    first = salvage(tmp_path / "store", tmp_path / "copy")
    kept = 6 - len(lost)
    assert (first.records, first.entries, first.lost_spans, first.dropped) == (kept, kept, len(lost), 0)
    assert [row["queueOffset"] for row in rows(tmp_path / "copy", on_loss=OnLoss.SKIP)] == [
        row for row in range(6) if row not in lost
    ]
    assert only_lost(tmp_path / "copy") == len(lost)
    second = salvage(tmp_path / "copy", tmp_path / "again")
    assert second == replace(first, lost_spans=0, lost_bytes=0)
    assert tree(tmp_path / "again") == tree(tmp_path / "copy")


def test_a_segment_that_was_cut_short_gets_the_size_that_is_passed(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "store", geometry=StoreGeometry(segment_bytes=4096)) as builder:
        appended = builder.append(messages(6, queues=1, body_bytes=31))
    (segment,) = segments(tmp_path / "store")
    os.truncate(segment, int(appended.physical_offsets[5]) + 20)
    for other in (512, 0):
        with pytest.raises(ConfigError, match=f"segment_bytes is {other}, the store's files are made for"):
            salvage(tmp_path / "store", tmp_path / "copy", segment_bytes=other)
    report = salvage(tmp_path / "store", tmp_path / "copy", segment_bytes=4096)
    assert (report.records, report.entries) == (5, 5)
    (copied,) = segments(tmp_path / "copy")
    assert copied.stat().st_size == 4096
    with pytest.raises(ConfigError, match="segment_bytes is 8192, the store's files are made for 4096"):
        salvage(tmp_path / "copy", tmp_path / "again", segment_bytes=8192)  # which states its size


def test_records_left_by_a_truncation_are_not_revived(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    geometry = StoreGeometry(segment_bytes=4096, queue_segment_entries=20)
    with StoreBuilder(old, geometry=geometry) as builder:
        builder.append(messages(20, queues=1, store_time_start=1_600_000_000_000, body_bytes=50))
    with StoreBuilder(new, geometry=geometry) as builder:
        appended = builder.append(messages(5, queues=1, body_bytes=31))
    for place, size in zip(appended.physical_offsets.tolist(), appended.sizes.tolist(), strict=True):
        overwrite(old, place, contents(new, place, size))
    shutil.rmtree(old / "consumequeue")
    report = salvage(old, tmp_path / "copy", queue_segment_entries=20)
    assert (report.records, report.entries, report.dropped) == (5, 5, 14)
    assert [row["physicalOffset"] for row in rows(tmp_path / "copy")] == appended.physical_offsets.tolist()


def state_offset(store: Path, physical_offset: int, queue_offset: int) -> None:
    overwrite(store, physical_offset + 20, queue_offset.to_bytes(8, "big", signed=True))


@pytest.mark.parametrize("row", [0, 4, 9])
@pytest.mark.parametrize("stated", [-1, 1, 3, 5, 8, 10, 1 << 40])
def test_a_damaged_queue_offset_is_corrected_by_the_old_queue_or_the_records_beside_it(
    tmp_path: Path, row: int, stated: int
) -> None:
    config = replace(CONFIG, record_crc=False)
    with MessageStore.open(tmp_path / "store", config) as opened:
        got = [opened.append(Outgoing(topic="T", body=b"%d" % number, keys="k")) for number in range(10)]
    whole = tree(tmp_path / "store" / "commitlog"), tree(tmp_path / "store" / "consumequeue"), rows(tmp_path / "store")
    state_offset(tmp_path / "store", got[row].physical_offset, stated)
    report = salvage(tmp_path / "store", tmp_path / "copy")
    assert (report.records, report.entries, report.left_out, report.lost_messages) == (10, 10, 0, 0)
    assert report.corrected == 1
    assert verify(tmp_path / "copy").findings == ()
    copied = tree(tmp_path / "copy" / "commitlog"), tree(tmp_path / "copy" / "consumequeue"), rows(tmp_path / "copy")
    assert copied == whole
    assert salvage(tmp_path / "copy", tmp_path / "again") == replace(report, corrected=0)


def test_a_queue_of_one_message_keeps_its_place(tmp_path: Path) -> None:
    config = replace(CONFIG, record_crc=False)
    with MessageStore.open(tmp_path / "store", config) as opened:
        got = opened.append(Outgoing(topic="T", body=b"", keys="k"))
    whole = tree(tmp_path / "store" / "consumequeue")
    state_offset(tmp_path / "store", got.physical_offset, 1 << 40)
    report = salvage(tmp_path / "store", tmp_path / "copy")
    assert (report.corrected, report.entries) == (1, 1)
    assert tree(tmp_path / "copy" / "consumequeue") == whole


def test_records_in_no_queue_are_counted(tmp_path: Path) -> None:
    """As brokers of 5.1 in controller mode stored them: two records have one queue offset, and the queue has one."""
    config = replace(CONFIG, record_crc=False)
    with MessageStore.open(tmp_path / "store", config) as opened:
        got = [opened.append(Outgoing(topic="T", body=b"%d" % number)) for number in range(6)]
    for row in (3, 4, 5):
        state_offset(tmp_path / "store", got[row].physical_offset, row - 1)
    queue = QueueFiles(tmp_path / "store", "T", 0)
    entries = queue.entries
    entries[3:5], entries[5] = entries[4:6].copy(), 0
    queue.entries = entries
    (finding,) = verify(tmp_path / "store").findings
    assert (finding.kind, finding.offset, finding.count) == (Kind.LEFT_OUT, got[3].physical_offset, 1)
    report = salvage(tmp_path / "store", tmp_path / "copy")
    assert (report.records, report.entries, report.left_out, report.corrected) == (6, 5, 1, 0)
    rebuilt = rebuild_queues(Snapshot.open(tmp_path / "store"), tmp_path / "queues", entries_per_segment=20)
    assert (rebuilt.entries, rebuilt.left_out) == (5, 1)
    assert tree(tmp_path / "queues") == tree(tmp_path / "copy" / "consumequeue")


def test_records_of_a_clock_that_was_set_back_are_kept_if_the_queue_holds_them(tmp_path: Path) -> None:
    config = replace(CONFIG, record_crc=False)
    with MessageStore.open(tmp_path / "store", config) as opened:
        got = [opened.append(Outgoing(topic="T", body=b"%d" % number)) for number in range(9)]
    for row in range(5, 9):
        overwrite(tmp_path / "store", got[row].physical_offset + 56, (1_600_000_000_000).to_bytes(8, "big"))
    overwrite(tmp_path / "store", got[4].physical_offset, bytes(50))
    report = salvage(tmp_path / "store", tmp_path / "copy")
    assert (report.records, report.entries, report.lost_messages, report.dropped) == (8, 8, 1, 0)
    assert [row["queueOffset"] for row in rows(tmp_path / "copy", on_loss=OnLoss.SKIP)] == [0, 1, 2, 3, 5, 6, 7, 8]


def test_queues_of_a_store_with_batch_queues_are_left_to_its_broker(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"topicConfigTable": {"B": {"attributes": {"queue.type": "BatchCQ"}}, "orders": {}}}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    with pytest.raises(UnsupportedStoreError, match=r"B have batch queues .* delete these topics"):
        MessageStore.open(store, CONFIG)
    with pytest.raises(UnsupportedStoreError, match="start its broker, which makes all queues"):
        rebuild_queues(store, tmp_path / "queues")
    before = rows(store)
    salvage(store, tmp_path / "copy")
    assert not (tmp_path / "copy" / "consumequeue").exists()
    assert rows(tmp_path / "copy") == before

    (store / "config" / "topics.json").unlink()
    (store / "batchconsumequeue" / "orders" / "0").mkdir(parents=True)
    shutil.rmtree(store / "consumequeue" / "orders" / "0")
    with caplog.at_level(logging.WARNING):
        assert verify(store).is_sound
    assert "messages that producers sent in batches to orders are not read" in caplog.text
    with pytest.raises(UnsupportedStoreError, match="orders have batch queues"):
        MessageStore.open(store, CONFIG)


def test_all_directories_of_a_log_are_copied_and_a_missing_one_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = write_whole(tmp_path / "many", 80), tmp_path / "other"
    before = rows(store)
    other.mkdir()
    first, *_, last = segments(store)
    last.rename(other / last.name)
    salvage(store, tmp_path / "short")
    assert "the log ends too early" in caplog.text
    caplog.clear()
    assert salvage(store, tmp_path / "copy", commit_log_paths=[store / "commitlog", other]).lost_spans == 0
    assert rows(tmp_path / "copy") == before
    assert "too early" not in caplog.text
    (other / last.name).rename(last)
    _, middle, *_ = segments(store)
    middle.rename(other / middle.name)
    with pytest.raises(CorruptRecordError, match=rf"segment of the record is missing.*{first.name}.*commit_log_paths"):
        rows(store)
    (other / middle.name).rename(middle)
    os.truncate(middle, 1000)
    with pytest.raises(CorruptRecordError, match=rf"beyond the bytes of its segment.*{middle.name}") as raised:
        rows(store)
    assert Remedy.NAME_COMMIT_LOG not in raised.value.remedies
