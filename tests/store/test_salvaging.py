"""`salvage`: what is whole keeps its offsets, brokers' files and ours."""

from pathlib import Path

import pytest

from segmentlog.store import (
    ConfigError,
    DamagedLogError,
    MessageStore,
    OnCorrupt,
    Outgoing,
    QueueKey,
    ScanSpec,
    StoreReader,
    salvage,
    verify,
)
from support.reading import whole_queues
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments

COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "msgId", "body", "tags")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


def rows(path: Path, on_corrupt: OnCorrupt = OnCorrupt.FAIL) -> list[dict[str, object]]:
    reader = StoreReader.open(path)
    spec = ScanSpec(columns=COLUMNS, on_corrupt=on_corrupt, check_crc=True)
    plan = reader.plan(whole_queues(reader), max_bytes=1 << 30, spec=spec)
    return sorted(
        (row for task in plan for batch in reader.scan(task, spec) for row in batch.to_pylist()),
        key=lambda row: row["physicalOffset"],
    )


@pytest.mark.parametrize("position", [0, 5, 777, 4000, 12000])
@pytest.mark.parametrize("size", [1, 40, 500])
def test_what_is_whole_is_copied_with_its_offsets(store: Path, tmp_path: Path, position: int, size: int) -> None:
    whole = rows(store)
    put_at(segments(store)[1], position, b"\xee" * size)
    left = rows(store, OnCorrupt.SKIP)
    (store / ".segmentlog" / "durable").unlink()  # a store of nobody, whose log is looked at from its start
    with pytest.raises(DamagedLogError):
        MessageStore.open(store, CONFIG)

    report = salvage(store, tmp_path / "copy", queue_segment_entries=CONFIG.queue_segment_entries)

    copied = rows(tmp_path / "copy", OnCorrupt.SKIP)
    assert copied == left
    assert all(row in whole for row in copied)
    assert report.records == len(copied) == ROWS - report.repeated
    assert report.lost_spans == 1
    assert verify(tmp_path / "copy").is_sound


def test_a_broker_or_we_can_go_on_with_the_copy(store: Path, tmp_path: Path) -> None:
    put_at(segments(store)[1], 3000, bytes(200))
    salvage(store, tmp_path / "copy", queue_segment_entries=CONFIG.queue_segment_entries)
    before = rows(tmp_path / "copy", OnCorrupt.SKIP)
    with MessageStore.open(tmp_path / "copy", CONFIG) as opened:
        assert opened.query("orders", "k0") == [0]
        assert opened.query("orders", f"k{ROWS - 1}") == [before[-1]["physicalOffset"]]
        at = opened.bounds(QueueKey("orders", 0)).max_offset
        assert opened.append(Outgoing(topic="orders", body=b"more")).queue_offset == at
    assert rows(tmp_path / "copy", OnCorrupt.SKIP)[:-1] == before
    assert verify(tmp_path / "copy").is_sound


def test_a_missing_segment(store: Path, tmp_path: Path) -> None:
    whole = rows(store)
    segments(store)[1].unlink()
    report = salvage(store, tmp_path / "copy", queue_segment_entries=CONFIG.queue_segment_entries)
    lost = range(CONFIG.segment_bytes, 2 * CONFIG.segment_bytes)
    copied = rows(tmp_path / "copy", OnCorrupt.SKIP)
    assert copied == [row for row in whole if row["physicalOffset"] not in lost]
    assert report.lost_bytes == CONFIG.segment_bytes
    assert verify(tmp_path / "copy").is_sound


def test_a_torn_end_is_left_out(store: Path, tmp_path: Path) -> None:
    whole = rows(store)
    last = segments(store)[-1]
    end = int(last.name) + len(last.read_bytes().rstrip(b"\0"))
    put_at(segments(store)[-1], end - int(last.name) - 30, bytes(30))
    salvage(store, tmp_path / "copy", queue_segment_entries=CONFIG.queue_segment_entries)
    assert rows(tmp_path / "copy") == whole[:-1]
    with MessageStore.open(tmp_path / "copy", CONFIG) as opened:
        assert opened.end_offset == whole[-1]["physicalOffset"]


def test_nothing_is_overwritten(store: Path) -> None:
    with pytest.raises(ConfigError, match="something is there"):
        salvage(store, store)
