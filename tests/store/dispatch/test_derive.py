import logging
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.store.dispatch.derive import DerivedQueue, derive_queue, derive_queues
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import java_hash
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.types import QueueKey
from support.store_builder import Appended, Geometry, StoreBuilder, messages
from support.tampering import contents, overwrite

GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=20)


def log(store: Path) -> CommitLog:
    return CommitLog(LocalFileSystem(), [str(store / "commitlog")])


def build(store: Path, *batches: pa.RecordBatch) -> list[Appended]:
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
        return [builder.append(batch) for batch in batches]


def whole(store: Path) -> dict[QueueKey, DerivedQueue]:
    found = log(store)
    return derive_queues(found, found.min_offset, found.stop)


@pytest.mark.parametrize("stated", [5, -1, 1 << 60, 30, 19, 21, (1 << 63) - 1])
def test_a_damaged_queue_offset_is_corrected_if_the_records_beside_it_tell(tmp_path: Path, stated: int) -> None:
    (appended,) = build(tmp_path / "s", messages(40, queues=1))
    overwrite(tmp_path / "s", int(appended.physical_offsets[20]) + 20, struct.pack(">q", stated))
    derived = whole(tmp_path / "s")[QueueKey("Orders", 0)]
    assert derived.queue_offset.tolist() == list(range(40))
    assert derived.physical_offset.tolist() == appended.physical_offsets.tolist()


def test_burnt_queue_offsets_stay_as_they_are(tmp_path: Path) -> None:
    (appended,) = build(tmp_path / "s", messages(40, queues=1))
    for number in range(25, 40):
        overwrite(tmp_path / "s", int(appended.physical_offsets[number]) + 20, struct.pack(">q", number + 7))
    derived = whole(tmp_path / "s")[QueueKey("Orders", 0)]
    assert derived.queue_offset.tolist() == [*range(25), *range(32, 47)]


def test_records_left_by_a_truncation_are_not_derived(tmp_path: Path) -> None:
    """Whole older records follow the end of the newer ones, after bytes of one that was cut in two."""
    old = messages(20, queues=1, store_time_start=1_600_000_000_000, body_bytes=50)
    build(tmp_path / "s", old)
    (new,) = build(tmp_path / "new", messages(5, queues=1, body_bytes=31))
    for place, size in zip(new.physical_offsets.tolist(), new.sizes.tolist(), strict=True):
        overwrite(tmp_path / "s", place, contents(tmp_path / "new", place, size))
    derived = whole(tmp_path / "s")[QueueKey("Orders", 0)]
    assert derived.physical_offset.tolist() == new.physical_offsets.tolist()


def test_names_that_no_topic_can_have(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, bad, _ = build(tmp_path / "s", messages(4), messages(3, topic="xxxxx"), messages(2, topic="yyyyy"))
    for place in bad.physical_offsets.tolist():
        record = contents(tmp_path / "s", place, int(bad.sizes[0]))
        overwrite(tmp_path / "s", place + record.index(b"xxxxx"), b"../xx")
    with caplog.at_level(logging.WARNING):
        assert {key.topic for key in whole(tmp_path / "s")} == {"Orders", "yyyyy"}
    assert "'../xx'" in caplog.text


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("1", 1), ("3", 10), ("18", 7200), ("19", 7200), ("0", None), ("-1", None), ("x", None), ("9" * 30, None)],
)
def test_delayed_messages_have_their_time_of_delivery(tmp_path: Path, delay: str, seconds: int | None) -> None:
    batch = messages(1, topic="SCHEDULE_TOPIC_XXXX", queues=1, tags=("t",)).append_column(
        "properties", pa.array([[("DELAY", delay)]], pa.map_(pa.string(), pa.string()))
    )
    build(tmp_path / "s", batch)
    found = log(tmp_path / "s")
    derived = derive_queue(found, QueueKey("SCHEDULE_TOPIC_XXXX", 0), 0, found.stop)
    expected = java_hash("t") if seconds is None else 1_700_000_000_000 + 1000 * seconds
    assert derived.tags_code.tolist() == [expected]


def test_records_that_are_left_out_are_warned_of_once_with_their_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (appended,) = build(tmp_path / "s", messages(40, queues=1))
    place = int(appended.physical_offsets[39])
    overwrite(tmp_path / "s", place + 20, struct.pack(">q", 38))
    name = appended.physical_offsets[0]
    overwrite(tmp_path / "s", int(name) + contents(tmp_path / "s", int(name), 400).index(b"Orders"), b"../xxx")
    shutil.rmtree(tmp_path / "s" / "consumequeue")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with segmentlog.open(tmp_path / "s", queue_cache="none") as opened:
                opened.queues(), opened.topics(), opened.scan("Orders").count()
    left_out = [each for each in caplog.messages if "left out" in each]
    unnamed = [each for each in caplog.messages if "no topic can be named" in each]
    assert (len(left_out), len(unnamed)) == (1, 1)
    assert all(str(tmp_path / "s" / "commitlog") in each for each in [*left_out, *unnamed])
    assert "queue Orders/0 are left out" in left_out[0]
    assert f"physical offset {place};" in left_out[0]
    assert "physical offset 0" in unnamed[0]


def test_a_log_with_batches_is_said_to_have_them_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "s"
    (appended,) = build(store, messages(20, topic="t", queues=1))
    assert whole(store)
    assert caplog.text == ""
    for place in appended.physical_offsets[:2].tolist():
        overwrite(store, place + 36, struct.pack(">i", 0x80))
    for _ in range(2):
        assert [queue.queue_offset[0] for queue in whole(store).values()] == [2]
    assert caplog.text.count("messages that producers sent in batches (queue.type=BatchCQ) are not read") == 1
