import gc
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.errors import OtherStoreError
from segmentlog.connector.stream.planner import Waiting, admit
from segmentlog.query.selection import UnknownTopicError
from segmentlog.store import (
    ConfigError,
    DataLossError,
    MessageStore,
    Outgoing,
    QueueKey,
    Remedy,
    RetentionSettings,
    SegmentLogError,
    StoreConfig,
)
from segmentlog.store.groups import commit_offsets
from segmentlog.store.maintenance import Conditions, apply_retention
from support import store_builder
from support.retention import Retention
from support.scale import scale
from support.streams import EVERYTHING, Row, Stream, put

SIZES = st.lists(st.integers(0, 5000), min_size=1, max_size=60)
QUEUES = st.lists(SIZES, min_size=1, max_size=12)
LIMIT = st.none() | st.integers(1, 300)
BYTES = st.none() | st.integers(1, 40_000)


def waiting(sizes: list[int]) -> Waiting:
    def between(start: int, stop: int) -> npt.NDArray[np.int64]:
        assert 0 <= start < stop <= len(sizes)
        return np.array(sizes[start:stop], np.int64)

    return Waiting(len(sizes), between)


@given(QUEUES, LIMIT, BYTES)
def test_limits_hold_and_are_used(queues: list[list[int]], max_records: int | None, max_bytes: int | None) -> None:
    counts = admit([waiting(sizes) for sizes in queues], max_records=max_records, max_bytes=max_bytes)
    assert all(0 <= count <= len(sizes) for count, sizes in zip(counts, queues, strict=True))
    assert counts[0] >= 1
    total = sum(counts)
    # A size that is not known counts as one byte.
    taken = [[max(1, size) for size in sizes[:count]] for count, sizes in zip(counts, queues, strict=True)]
    used = sum(map(sum, taken))
    assert max_records is None or total <= max_records
    assert max_bytes is None or used <= max_bytes or total == 1
    full = max_records is not None and total == max_records
    if not full:
        # Nothing that still fits was left behind.
        for count, sizes in zip(counts, queues, strict=True):
            if count < len(sizes):
                assert max_bytes is not None
                assert used + max(1, sizes[count]) > max_bytes


@given(QUEUES, LIMIT, BYTES)
def test_every_queue_is_served_when_its_turn_comes(
    queues: list[list[int]], max_records: int | None, max_bytes: int | None
) -> None:
    left = {at: list(sizes) for at, sizes in enumerate(queues)}
    turn, rounds = 0, 0
    total = sum(map(len, queues))
    while left:
        order = sorted(left, key=lambda at: (at - turn) % len(queues))
        counts = admit([waiting(left[at]) for at in order], max_records=max_records, max_bytes=max_bytes)
        assert counts[0] >= 1
        turn = order[0] + 1
        left = {at: left[at][count:] for at, count in zip(order, counts, strict=True) if left[at][count:]}
        rounds += 1
    assert rounds <= total


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=50), st.integers(1, 100_000))
def test_the_record_limit_is_shared_in_proportion_to_waiting_messages(counts: list[int], limit: int) -> None:
    def unasked(start: int, stop: int) -> npt.NDArray[np.int64]:
        raise AssertionError("no size is read without a limit in bytes")

    given_out = admit([Waiting(count, unasked) for count in counts], max_records=limit, max_bytes=None)
    total = sum(counts)
    assert sum(given_out) == min(limit, total)
    if len(counts) <= limit < total:
        for got, count in zip(given_out, counts, strict=True):
            assert 1 <= got <= count
            assert abs(got - limit * count / total) <= 1 + len(counts)


def test_small_queues_are_not_starved_by_a_large_queue_and_large_queues_share_the_bytes() -> None:
    queues = [waiting([100] * 50_000), *(waiting([100]) for _ in range(20))]
    assert admit(queues, max_records=30, max_bytes=None)[1:] == [1] * 20
    counts = admit(queues, max_records=None, max_bytes=10_000)
    assert counts == [80, *[1] * 20]
    assert admit([waiting([100] * 1000)] * 2, max_records=None, max_bytes=10_000) == [50, 50]


def test_sizes_are_read_no_further_than_the_limit_goes() -> None:
    asked = [0]

    def sizes(start: int, stop: int) -> npt.NDArray[np.int64]:
        asked[0] += stop - start
        return np.full(stop - start, 1000, np.int64)

    (count,) = admit([Waiting(1 << 40, sizes)], max_records=None, max_bytes=1_000_000)
    assert count == 1000
    assert asked[0] <= 8192


SMALL = StoreConfig(segment_bytes=16 << 10, queue_segment_entries=16, index=False)
ROOMY = StoreConfig(segment_bytes=4 << 20, queue_segment_entries=1000, index=False)
TRIGGERS = scale(100, 2000, 86_400)
ROUND = scale(100, 1000, 1000)
MAPS_MAX = 17
GROWTH_KIB_MAX = 16 << 10
EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", ROOMY) as opened:
        yield opened


def written(path: Path, total: int, config: StoreConfig = SMALL, **how: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with MessageStore.open(path, config) as made:
        put(made, total, **how)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("model") / "store", 300, body=b"x" * 300)


@pytest.fixture
def path(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "store"))


def anonymous(path: Path) -> Path:
    """Take a store's own name away: it is then known as a broker's is, by what was read."""
    (path / ".segmentlog" / "id").unlink()
    return path


def spans(rows: list[Row] | None) -> dict[str, tuple[int, int, int]]:
    """First and last offset of each queue, and how many rows it has; that they are in order is checked on the way."""
    found: dict[str, list[int]] = {}
    for topic, queue, offset in rows or []:
        found.setdefault(f"{topic}/{queue}", []).append(offset)
    for offsets in found.values():
        assert offsets == sorted(set(offsets))
    return {key: (offsets[0], offsets[-1], len(offsets)) for key, offsets in found.items()}


def drop_segments(path: Path, keep: int = 1) -> None:
    for segment in sorted((path / "commitlog").iterdir())[:-keep]:
        segment.unlink()


def test_each_message_once_and_nothing_when_nothing_moved(store: MessageStore) -> None:
    put(store, 5)
    stream = Stream(store.path, subscribe="T", **EARLIEST)
    assert spans(stream.batch()) == {"T/0": (0, 2, 3), "T/1": (0, 1, 2)}
    for _ in range(3):
        assert stream.batch() is None
    put(store, 1)
    assert spans(stream.batch()) == {"T/0": (3, 3, 1)}
    assert stream.positions() == {"T/0": 4, "T/1": 2}


def test_the_default_start_is_latest_and_later_queues_are_read_in_full(store: MessageStore) -> None:
    put(store, 4)
    stream = Stream(store.path, subscribePattern=".*")
    assert stream.batch() is None
    put(store, 3, queues=3)
    put(store, 2, topic="New", queues=1)
    assert spans(stream.batch()) == {"T/0": (2, 2, 1), "T/1": (2, 2, 1), "T/2": (0, 0, 1), "New/0": (0, 1, 2)}
    assert stream.batch() is None


def test_a_batch_can_be_planned_again_after_a_restart(store: MessageStore) -> None:
    put(store, 4)
    stream = Stream(store.path, subscribePattern="T", **EARLIEST)
    first = stream.batch()
    put(store, 6, queues=3)
    second = stream.batch()
    begun, ended = stream.started, stream.offset
    put(store, 5)
    again = Stream(store.path, begun, subscribePattern="T")
    assert again.rows(begun, ended) == second
    again.offset = ended
    assert spans(first + second + again.all()) == {"T/0": (0, 6, 7), "T/1": (0, 5, 6), "T/2": (0, 1, 2)}


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"maxOffsetsPerTrigger": "7"}, 7), ({"maxBytesPerTrigger": "1k"}, 9), ({"maxOffsetsPerTrigger": "1"}, 1)],
)
def test_limits(store: MessageStore, limits: dict[str, str], most: int) -> None:
    put(store, 60)
    stream = Stream(store.path, subscribe="T", **EARLIEST, **limits)
    batches = []
    while (rows := stream.batch()) is not None:
        batches.append(rows)
    assert all(1 <= len(rows) <= most for rows in batches)
    assert Counter(row for rows in batches for row in rows) == Counter(("T", n % 2, n // 2) for n in range(60))
    put(store, 20)
    assert len(stream.batch(EVERYTHING) or []) == 20  # Spark's own limit rules


def test_least_messages_wait_but_not_for_ever(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, 4)
    stream = Stream(store.path, subscribe="T", minOffsetsPerTrigger="10", maxTriggerDelay="30s", **EARLIEST)
    now = [1000.0]
    monkeypatch.setattr(stream.reader._plans, "_clock", lambda: now[0])
    assert len(stream.batch() or []) == 4  # a query does not begin with a wait
    put(store, 9)
    now[0] += 29
    assert stream.batch() is None
    put(store, 1)
    assert len(stream.batch() or []) == 10
    put(store, 1)
    now[0] += 29
    assert stream.batch() is None
    now[0] += 1.5
    assert len(stream.batch() or []) == 1


def test_available_now_ends_with_the_messages_present_at_its_start(store: MessageStore) -> None:
    put(store, 20)
    given = {"subscribePattern": "T.*", "maxOffsetsPerTrigger": "6", "minOffsetsPerTrigger": "6"}
    stream = Stream(store.path, available_now=True, **given, **EARLIEST)
    assert len(stream.batch() or []) == 6
    put(store, 20, queues=3)
    put(store, 3, topic="T2")
    rows = stream.all()
    assert len(rows) == 14
    assert stream.positions() == {"T/0": 10, "T/1": 10}
    after = Stream(store.path, stream.offset, available_now=True, **given)
    assert spans(after.all()) == {
        "T/0": (10, 16, 7), "T/1": (10, 16, 7), "T/2": (0, 5, 6), "T2/0": (0, 1, 2), "T2/1": (0, 0, 1),
    }  # fmt: skip


def test_a_batch_is_cut_into_tasks_as_a_batch_read_is(store: MessageStore) -> None:
    put(store, 40)
    stream = Stream(store.path, subscribe="T", maxRecordsPerPartition="7", **EARLIEST)
    assert len(stream.batch() or []) == 40
    partitions = stream.partitions(stream.started, stream.offset)
    assert len(partitions) >= 6
    assert all(partition.task.rows <= 7 for partition in partitions)
    assert stream.partitions(stream.offset, stream.offset) == []


# Options


def test_names_that_the_store_does_not_know(store: MessageStore) -> None:
    put(store, 1)
    commit_offsets(store.path, "billing", {QueueKey("T", 0): 0})
    with pytest.raises(UnknownTopicError, match="there is no topic `Tee`"):
        Stream(store.path, subscribe="Tee")
    with pytest.raises(ConfigError, match=r"consumer group `biling` has no position here .*Did you mean `billing`"):
        Stream(store.path, subscribe="T", startingOffsets="group:biling")
    stream = Stream(store.path, subscribe="T", startingOffsets="group:billing")
    assert spans(stream.batch()) == {"T/0": (0, 0, 1)}
    with pytest.raises(UnknownTopicError, match="there is no topic `Tee`"):
        Stream(store.path, stream.offset, subscribe="T,Tee").batch()


def test_a_topic_leaves_and_joins_the_subscription(store: MessageStore) -> None:
    put(store, 4)
    put(store, 4, topic="U")
    stream = Stream(store.path, subscribe="T,U", **EARLIEST)
    rows = stream.batch() or []
    assert len(rows) == 8
    # An unfinished batch is repeated unchanged.
    assert Stream(store.path, stream.started, subscribe="T").rows(stream.started, stream.offset) == rows
    put(store, 2)
    only = Stream(store.path, stream.offset, subscribe="T")
    assert spans(only.batch()) == {"T/0": (2, 2, 1), "T/1": (2, 2, 1)}
    assert set(only.positions()) == {"T/0", "T/1"}
    both = Stream(store.path, only.offset, subscribe="T,U", startingOffsets="latest")
    assert spans(both.batch()) == {"U/0": (0, 1, 2), "U/1": (0, 1, 2)}


# Which store it is


def test_another_store_in_its_place(tmp_path: Path) -> None:
    """With more messages, of the same sizes: only their times differ."""
    path = anonymous(written(tmp_path / "store", 12))
    stream = Stream(path, subscribe="T", **EARLIEST)
    stream.batch()
    shutil.rmtree(path)
    anonymous(written(path, 60))
    with pytest.raises(
        OtherStoreError, match=r"another store, or topic `T` was recreated: the message of T/1 at offset 5"
    ):
        Stream(path, stream.offset, subscribe="T").batch()
    with pytest.raises(OtherStoreError):
        Stream(path, stream.started, subscribe="T").partitions(stream.started, stream.offset)
    after = Stream(path, stream.offset, subscribe="T", failOnDataLoss="false")
    assert spans(after.all()) == {"T/0": (0, 29, 30), "T/1": (0, 29, 30)}


@pytest.mark.parametrize("source", ["auto", "commitlog"])
def test_another_store_in_its_place_while_the_query_runs(tmp_path: Path, source: str) -> None:
    path = anonymous(written(tmp_path / "store", 12))
    stream = Stream(path, subscribe="T", queueSource=source, queueCache="none", **EARLIEST)
    stream.batch()
    shutil.rmtree(path)
    anonymous(written(path, 60))
    # A writer that comes with it changes what a look compares.
    with MessageStore.open(path, SMALL), pytest.raises(OtherStoreError, match="topic `T` was recreated"):
        stream.batch()


@pytest.mark.parametrize("is_same_store", [False, True])
def test_a_smaller_store_in_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_same_store: bool) -> None:
    path = written(tmp_path / "store", 12, ROOMY)
    early = shutil.copytree(path, tmp_path / "early")
    with MessageStore.open(path, ROOMY) as store:
        put(store, 8)
    if not is_same_store:
        anonymous(path)
        early = anonymous(written(tmp_path / "other", 4))
    stream = Stream(path, subscribe="T", **EARLIEST)
    stream.batch()
    shutil.rmtree(path)
    early.rename(path)
    end = 6 if is_same_store else 2
    with pytest.raises(DataLossError, match=f"T/0 now ends at offset {end}, before offset 10.*begin a new checkpoint"):
        Stream(path, stream.offset, subscribe="T").batch()
    after = Stream(path, stream.offset, subscribe="T", failOnDataLoss="false")
    if not is_same_store:
        assert spans(after.batch()) == {"T/0": (0, 1, 2), "T/1": (0, 1, 2)}
        assert "T/0 now ends at offset 2" in caplog.text
    else:
        assert after.batch() == []  # the jump back, so that a restart does not find it again
        assert after.positions() == {"T/0": 6, "T/1": 6}
        with MessageStore.open(path, ROOMY) as store:
            put(store, 2)
        assert spans(after.batch()) == {"T/0": (6, 6, 1), "T/1": (6, 6, 1)}
    assert after.batch() is None


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_deleted_while_the_query_runs(tmp_path: Path, fails: str) -> None:
    path = written(tmp_path / "store", 6)
    with MessageStore.open(path, SMALL) as store:
        put(store, 6, topic="U")
    stream = Stream(path, subscribePattern=".*", failOnDataLoss=fails, **EARLIEST)
    stream.batch()
    shutil.rmtree(path / "consumequeue" / "U")
    if fails == "true":
        with pytest.raises(DataLossError, match="U/0 was read up to offset 3, and is gone now"):
            stream.batch()
        return
    assert stream.batch() is None
    with MessageStore.open(path, SMALL) as store:  # which makes the queues of its log again
        put(store, 2)
    shutil.rmtree(path / "consumequeue" / "U")
    assert spans(stream.batch()) == {"T/0": (3, 3, 1), "T/1": (3, 3, 1)}
    assert set(stream.positions()) == {"T/0", "T/1"}


# Losses


def test_retention_overtakes_the_stream(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"subscribe": "T", "maxOffsetsPerTrigger": "20"}
    stream = Stream(path, **given, **EARLIEST)
    stream.batch()
    position = stream.offset
    drop_segments(path, keep=2)
    with pytest.raises(DataLossError) as caught:
        stream.batch()
    assert "messages of T/0, offsets 10 to " in str(caught.value)
    assert Remedy.SKIP_LOST in caught.value.remedies
    after = Stream(path, position, **given, failOnDataLoss="false")
    rows = after.all()
    assert spans(rows)["T/0"][1:] == (149, 150 - spans(rows)["T/0"][0])
    (store,) = json.loads(after.offset)["stores"].values()
    assert store["topics"]["T"]["lost"] == 300 - 20 - len(rows)
    assert caplog.text.count("messages of T/0, offsets 10 to ") == 1


DERIVED = {"queueSource": "commitlog", "queueCache": "none"}


def roll(path: Path) -> None:
    """Fill segments with another topic, and delete all but the newest."""
    with MessageStore.open(path, SMALL) as store:
        put(store, 150, topic="Other", body=b"x" * 300)
    drop_segments(path)


def more(path: Path, queue: int, total: int = 1) -> None:
    with MessageStore.open(path, SMALL) as store:
        for _ in range(total):
            store.append(Outgoing(topic="T", body=b"body", queue_id=queue))


@pytest.mark.parametrize("restarts_with", [None, DERIVED, {}])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_queue_that_came_and_went_between_two_looks_at_derived_queues_is_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: str, restarts_with: dict[str, str] | None
) -> None:
    path = written(tmp_path / "store", 3, queues=1)
    given = {"subscribe": "T", "failOnDataLoss": fails} | EARLIEST
    stream = Stream(path, **DERIVED, **given)
    assert spans(stream.batch()) == {"T/0": (0, 2, 3)}
    more(path, 1, total=4)
    roll(path)
    assert stream.batch() is None
    more(path, 0)
    assert spans(stream.batch()) == {"T/0": (3, 3, 1)}
    if restarts_with is not None:
        stream = Stream(path, stream.offset, **restarts_with, **given)
    if restarts_with != {}:  # files show the queue without messages
        assert stream.batch() is None
    more(path, 1)
    said = "4 messages of T/1, offsets 0 to 3, were deleted before the queue was first seen"
    if fails == "true":
        with pytest.raises(DataLossError, match=said):
            stream.batch()
        return
    assert spans(stream.batch()) == {"T/1": (4, 4, 1)}
    assert caplog.text.count(said) == 1
    (kept,) = json.loads(stream.offset)["stores"].values()
    assert kept["topics"]["T"]["lost"] == 4
    assert stream.batch() is None


@pytest.mark.parametrize("is_restarted", [False, True])
def test_derived_queues_whose_messages_were_read_and_then_deleted_lost_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_restarted: bool
) -> None:
    path = written(tmp_path / "store", 6)
    given = {"subscribe": "T", **EARLIEST, **DERIVED}
    stream = Stream(path, **given)
    assert spans(stream.batch()) == {"T/0": (0, 2, 3), "T/1": (0, 2, 3)}
    for queue in (0, 1):
        roll(path)
        assert stream.batch() is None
        if is_restarted:
            stream = Stream(path, stream.offset, **given)
            assert stream.batch() is None
        more(path, queue)
        assert spans(stream.batch()) == {f"T/{queue}": (3, 3, 1)}
        assert set(stream.positions()) == {"T/0", "T/1"}
    more(path, 1)
    roll(path)
    more(path, 1)
    with pytest.raises(DataLossError, match="1 messages of T/1, offsets 4 to 4, were deleted before they were read"):
        stream.batch()
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_a_derived_queue_that_is_older_than_the_query_lost_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "store", 6)
    roll(path)
    more(path, 0)
    stream = Stream(path, subscribe="T", **EARLIEST, **DERIVED)
    assert spans(stream.batch()) == {"T/0": (3, 3, 1)}
    for _ in range(3):  # no look is without a part of the log that the one before had
        with MessageStore.open(path, SMALL) as store:
            put(store, 150, topic="Other", body=b"x" * 300)
        assert stream.batch() is None
        drop_segments(path)
        assert stream.batch() is None
    more(path, 1)
    assert spans(stream.batch()) == {"T/1": (3, 3, 1)}


def test_a_loss_says_when_and_why_retention_deleted_the_messages(path: Path) -> None:
    stream = Stream(path, subscribe="T", maxOffsetsPerTrigger="20", **EARLIEST)
    stream.batch()
    now_ms = 1_900_000_000_000
    conditions = Conditions(now_ms=now_ms, hour=4, log_used=10, queues_used=10)
    done = apply_retention(path, RetentionSettings(log_pause_ms=0, queue_pause_ms=0), conditions)
    with pytest.raises(DataLossError) as caught:
        stream.batch()
    last = done.log_start - SMALL.segment_bytes
    when = "2030-03-17T17:46:40.000+00:00"
    assert f"retention deleted commitlog/{last:020d} at {when}: expired (time)" in str(caught.value)


def test_a_stream_that_retention_protects_loses_nothing(path: Path) -> None:
    stream = Stream(path, subscribe="T", maxOffsetsPerTrigger="20", consumerGroup="etl", **EARLIEST)
    settings = RetentionSettings(protected_groups=("etl",), log_pause_ms=0, queue_pause_ms=0)
    conditions = Conditions(now_ms=1_900_000_000_000, hour=4, log_used=10, queues_used=10, rounds=3)
    assert apply_retention(path, settings, conditions).log_start == 0  # it has not published anything
    rows, starts = [], []
    while (found := stream.batch()) is not None:
        rows += found
        stream.reader.stop()  # publishes the progress of this batch
        starts.append(apply_retention(path, settings, conditions).log_start)
    assert sorted(rows) == [("T", queue, offset) for queue in range(2) for offset in range(150)]
    assert starts == sorted(starts)
    assert len(set(starts)) >= 5


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("lost", ["queues", "both"])
def test_retention_between_the_plan_and_the_read(path: Path, fails: str, lost: str) -> None:
    stream = Stream(path, subscribe="T", failOnDataLoss=fails, maxRecordsPerPartition="40", **EARLIEST)
    end = stream.reader.latestOffset(json.loads(stream.offset), EVERYTHING)
    partitions = stream.partitions(stream.offset, json.dumps(end))
    if lost == "both":
        drop_segments(path, keep=3)
    for queue in ("0", "1"):
        for file in sorted((path / "consumequeue" / "T" / queue).iterdir())[:2]:
            file.unlink()

    def read() -> int:
        return sum(batch.num_rows for partition in partitions for batch in stream.reader.read(partition))

    if fails == "true" and lost == "both":
        with pytest.raises(DataLossError):
            read()
        return
    # Entries that are gone are derived from a log that is there.
    assert read() == 300 if lost == "queues" else 0 < read() < 300


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("restarted", [False, True])
def test_retention_between_the_plan_of_the_first_batch_and_its_tasks(
    path: Path, caplog: pytest.LogCaptureFixture, fails: str, *, restarted: bool
) -> None:
    given = {"subscribe": "T", "maxOffsetsPerTrigger": "20", "failOnDataLoss": fails, **EARLIEST}
    stream = Stream(path, **given)
    end = json.dumps(stream.reader.latestOffset(json.loads(stream.offset), stream.reader.getDefaultReadLimit()))
    drop_segments(path, keep=3)
    if restarted:
        stream = Stream(path, **given)
    # No checkpoint has the start of the first batch: Spark asks for it once more.
    start = json.dumps(stream.reader.initialOffset())
    if fails == "true":
        with pytest.raises(DataLossError, match=r"10 messages of T/0\[0, 10\) are gone: the queue holds"):
            stream.partitions(start, end)
        return
    assert stream.rows(start, end) == []
    stream.offset = end
    rows = stream.all()
    (store,) = json.loads(stream.offset)["stores"].values()
    assert store["topics"]["T"]["lost"] == 300 - len(rows) > 100
    assert "10 messages of T/0[0, 10) are gone" in caplog.text


def test_a_hole_in_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    segments = sorted((path / "commitlog").iterdir())
    segments[2].unlink()
    with pytest.raises(SegmentLogError, match="T/0 offset"):
        Stream(path, subscribe="T", **EARLIEST).batch()
    rows = Stream(path, subscribe="T", failOnDataLoss="false", **EARLIEST).batch() or []
    whole = Counter(("T", n % 2, n // 2) for n in range(300))
    assert not Counter(rows) - whole
    assert 0 < 300 - len(rows) < 60
    assert "damaged records" in caplog.text


# Going on and on


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.timeout(scale(600, 1800, 7200))
def test_thousands_of_triggers_leak_no_descriptors_maps_objects_or_memory(
    tmp_path: Path, report: Callable[[str, object], None]
) -> None:
    """A day at one a second, in the long run; some find messages, and files come and go."""
    geometry = store_builder.Geometry(segment_bytes=16 << 10, queue_segment_entries=25)
    builder = store_builder.StoreBuilder(tmp_path / "store", geometry=geometry)
    builder.append(store_builder.messages(40, queues=20))
    retention = Retention(tmp_path / "store", keep=4)
    stream = Stream(tmp_path / "store", subscribePattern=".*", maxOffsetsPerTrigger="15", maxBytesPerTrigger="64k")
    put = 40

    def run(triggers: int) -> tuple[int, int, int, int]:
        nonlocal put
        for number in range(triggers):
            if number % 20 == 0:
                builder.append(store_builder.messages(20, queues=20))
                put += 20
            stream.batch()
            stream.reader.reportLatestOffset()
        stream.all()
        retention.tick()
        gc.collect()
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").count(str(tmp_path))
        memory = Path("/proc/self/status").read_text(encoding="ascii").partition("RssAnon:")[2].split()[0]
        return len(os.listdir("/proc/self/fd")), maps, len(gc.get_objects()), int(memory)

    run(200)
    descriptors, maps, objects, memory = run(ROUND)
    for _ in range(TRIGGERS // ROUND):
        after = run(ROUND)
        assert after[0] <= descriptors + MAPS_MAX
        assert after[1] <= MAPS_MAX
        assert after[2] <= objects + 500
        assert after[3] <= memory + GROWTH_KIB_MAX
    report("triggers", f"{TRIGGERS}: descriptors {descriptors} {after[0]}, maps {maps} {after[1]}, objects {objects} ")
    report("triggers, memory", f"{memory} KiB after {200 + ROUND}, {after[3]} at the end; {retention.deleted}")
    assert sum(stream.positions().values()) == put
    builder.close()


# Groups


def test_progress_is_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "store", 10)
    offsets = path / "config" / "consumerOffset.json"

    def progress() -> object:
        return json.loads(offsets.read_text()).get("offsetTable", {}).get("T@g") if offsets.exists() else None

    stream = Stream(path, available_now=True, subscribe="T", consumerGroup="g", maxOffsetsPerTrigger="4", **EARLIEST)
    assert progress() is None
    assert len(stream.all()) == 10
    assert progress() == {"0": 5, "1": 5}, caplog.text


def test_progress_that_cannot_be_published_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("segmentlog.connector.stream.reader.publish_progress", refuse)
    stream = Stream(written(tmp_path / "store", 10), subscribe="T", consumerGroup="g", **EARLIEST)
    assert len(stream.all()) == 10
    assert "the progress of consumer group `g` could not be published" in caplog.text
