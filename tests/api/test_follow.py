import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.api.follow import Follow, checked_seconds
from segmentlog.store import (
    ConfigError,
    DataLossError,
    MessageStore,
    OnLoss,
    Outgoing,
    QueueKey,
    StoreConfig,
    UnconfirmedError,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.log.confirmed import ConfirmationFile
from support.store_builder import Geometry, StoreBuilder, messages

CONFIG = StoreConfig(segment_bytes=1 << 20, index=False)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "live", CONFIG) as made:
        put(made, "0")
        yield made


def put(writer: MessageStore, *bodies: str, topic: str = "orders", queue: int = 0) -> None:
    for body in bodies:
        writer.append(Outgoing(topic=topic, queue_id=queue, body=body.encode(), tags="t" + body[-1]))
    writer.wait_dispatched()


def bodies(batches: list[pa.RecordBatch]) -> list[str]:
    return [body.decode() for batch in batches for body in batch["body"].to_pylist()]


@pytest.mark.slow
def test_each_message_of_a_live_writer_comes_once_and_in_order(tmp_path: Path, writer: MessageStore) -> None:
    def write() -> None:
        for number in range(1, 121):
            writer.append(Outgoing(topic="orders", queue_id=number % 3, body=str(number).encode()))
            if number % 40 == 0:
                time.sleep(0.01)

    thread = threading.Thread(target=write)
    columns = ["queueId", "queueOffset", "body"]
    with segmentlog.open(tmp_path / "live") as store:
        follower = store.follow("orders", start="earliest", columns=columns, poll_s=0.01, timeout_s=2)
        thread.start()
        batches = list(follower)
        thread.join()
        assert len(batches) > 1
        rows = pa.Table.from_batches(batches)
        assert sorted(map(int, rows["body"].to_pylist())) == list(range(121))
        for queue in range(3):
            offsets = rows.filter(pa.compute.equal(rows["queueId"], queue))["queueOffset"].to_pylist()
            assert offsets == list(range(len(offsets)))
        assert follower.positions == {QueueKey("orders", queue): 41 if queue == 0 else 40 for queue in range(3)}


def test_following_starts_with_messages_appended_after_the_call(tmp_path: Path, writer: MessageStore) -> None:
    follower = segmentlog.open(tmp_path / "live").follow("orders", poll_s=0.01, timeout_s=0.5)
    put(writer, "1")
    put(writer, "2", queue=7)  # a new queue
    put(writer, "3", topic="payments")
    assert sorted(bodies(list(follower))) == ["1", "2"]
    assert follower.positions == {QueueKey("orders", 0): 2, QueueKey("orders", 7): 1}


def test_positions_are_where_to_go_on(tmp_path: Path, writer: MessageStore) -> None:
    store = segmentlog.open(tmp_path / "live")
    first = store.follow("orders", start="earliest", poll_s=0.01)
    assert bodies([next(first)]) == ["0"]
    assert first.positions == {QueueKey("orders", 0): 0}  # this batch may not have been worked through
    put(writer, "1")
    assert bodies([next(first)]) == ["1"]
    assert first.positions == {QueueKey("orders", 0): 1}
    again = store.follow("orders", start=first.positions, poll_s=0.01, timeout_s=0.1)
    assert bodies(list(again)) == ["1"]


def test_follow_takes_the_filters_and_columns_of_a_scan(tmp_path: Path, writer: MessageStore) -> None:
    put(writer, "1", "2", "11")
    follower = segmentlog.open(tmp_path / "live").follow(
        "orders", start="earliest", tags="t1", columns="body", properties="TAGS", timeout_s=0.1
    )
    (batch,) = follower
    assert batch.to_pydict() == {"body": [b"1", b"11"], "TAGS": ["t1", "t1"]}
    assert follower.positions == {QueueKey("orders", 0): 4}


def test_a_pattern_follows_topics_that_are_created_later(tmp_path: Path, writer: MessageStore) -> None:
    with segmentlog.open(tmp_path / "live") as store:
        follower = store.follow("^ord", start="earliest", columns=["topic", "body"], poll_s=0.01, timeout_s=1)
        put(writer, "1", topic="orders2")
        put(writer, "2", topic="other")
        found = [(row["topic"], row["body"]) for batch in follower for row in batch.to_pylist()]
    assert sorted(found) == [("orders", b"0"), ("orders2", b"1")]


@pytest.mark.parametrize("closes", ["follower", "store"])
def test_another_thread_ends_the_waiting(tmp_path: Path, writer: MessageStore, closes: str) -> None:
    store = segmentlog.open(tmp_path / "live")
    follower = store.follow("orders", poll_s=500)
    timer = threading.Timer(0.1, (follower if closes == "follower" else store).close)
    timer.start()
    began = time.monotonic()
    assert list(follower) == []
    assert time.monotonic() - began < 100
    timer.join()


def test_an_interrupt_ends_the_iteration(tmp_path: Path, writer: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with segmentlog.open(tmp_path / "live").follow("orders", poll_s=0.01) as follower:

        def interrupted(_: float) -> bool:
            raise KeyboardInterrupt

        monkeypatch.setattr(follower._closed, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(follower)
        assert list(follower) == []


def test_a_message_is_returned_long_before_the_next_look(tmp_path: Path, writer: MessageStore) -> None:
    put(writer, "1", queue=1)
    with segmentlog.open(tmp_path / "live").follow("orders", poll_s=100_000) as follower:
        for queue in (0, 1):
            timer = threading.Timer(0.05, put, (writer, "2"), {"queue": queue})
            timer.start()
            assert bodies([next(follower)]) == ["2"]
            timer.join()


def small_store(path: Path, count: int, body_bytes: int = 20) -> None:
    with StoreBuilder(path, geometry=Geometry(segment_bytes=1 << 14, queue_segment_entries=1000)) as builder:
        builder.append(messages(count, topic="orders", queues=1, body_bytes=body_bytes))


@pytest.mark.parametrize("on_loss", OnLoss)
def test_messages_deleted_before_they_were_read(tmp_path: Path, on_loss: OnLoss) -> None:
    small_store(tmp_path / "store", 400)
    follower = segmentlog.open(tmp_path / "store").follow("orders", start="earliest", on_loss=on_loss, timeout_s=0.1)
    min((tmp_path / "store" / "commitlog").iterdir()).unlink()
    follower._look()
    if on_loss is OnLoss.FAIL:
        with pytest.raises(DataLossError, match=r"of orders/0, offsets 0 to \d+, were deleted.*on_loss='skip'"):
            next(follower)
    else:
        found = pa.Table.from_batches(list(follower))["queueOffset"].to_pylist()
        assert found == list(range(found[0], 400))
        assert found[0] > 0


SMALL = StoreConfig(segment_bytes=16 << 10, queue_segment_entries=16, index=False)


def append(path: Path, total: int, *, topic: str = "orders", queue: int = 0, size: int = 20) -> None:
    """Append messages to a store whose queues the reader derives from the log."""
    queues, aside = path / "consumequeue", path.with_name("queues")  # its writer has them
    if aside.exists():
        aside.rename(queues)
    with MessageStore.open(path, SMALL) as store:
        for _ in range(total):
            store.append(Outgoing(topic=topic, queue_id=queue, body=b"x" * size))
    queues.rename(aside)


def roll(path: Path) -> None:
    """Fill segments with another topic, and delete all but the newest."""
    append(path, 150, topic="other", size=300)
    for segment in sorted((path / "commitlog").iterdir())[:-1]:
        segment.unlink()


def follow(path: Path, on_loss: OnLoss = OnLoss.FAIL) -> Follow:
    store = segmentlog.open(path, queue_cache=None)
    return store.follow("orders", start="earliest", on_loss=on_loss, columns=["queueOffset"], poll_s=0.01, timeout_s=1)


def offsets(follower: Follow) -> list[int]:
    return next(follower)["queueOffset"].to_pylist()


@pytest.mark.parametrize("on_loss", OnLoss)
def test_the_front_of_a_queue_that_was_deleted_before_it_was_seen_is_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on_loss: OnLoss
) -> None:
    path = tmp_path / "store"
    append(path, 3)
    follower = follow(path, on_loss)
    assert offsets(follower) == [0, 1, 2]
    append(path, 4, queue=1)
    roll(path)
    follower._look()
    append(path, 1)
    assert offsets(follower) == [3]
    append(path, 1, queue=1)
    said = "4 messages of orders/1, offsets 0 to 3, were deleted before the queue was first seen"
    if on_loss is OnLoss.FAIL:
        with pytest.raises(DataLossError, match=said):
            next(follower)
    else:
        assert offsets(follower) == [4]
        assert said in caplog.text


def test_the_deleted_front_of_a_new_queue_with_files_is_a_loss(tmp_path: Path) -> None:
    small = MessageStore.open(tmp_path / "small", SMALL)
    put(small, "0")
    follower = segmentlog.open(small.path).follow("orders", start="earliest", poll_s=0.01, timeout_s=1)
    assert bodies([next(follower)]) == ["0"]
    put(small, *["1" * 300] * 200, queue=1)
    min(Path(small.path, "commitlog").iterdir()).unlink()
    with small, pytest.raises(DataLossError, match=r"orders/1, offsets 0 to \d+, were deleted before the queue was"):
        next(follower)


def test_derived_queues_whose_messages_were_read_and_then_deleted_lost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    append(path, 3)
    append(path, 2, queue=1)
    follower = follow(path)
    assert offsets(follower) == [0, 1, 2, 0, 1]
    for queue, offset in ((0, 3), (1, 2)):
        roll(path)
        follower._look()
        append(path, 1, queue=queue)
        assert offsets(follower) == [offset]
    append(path, 1, queue=1)
    roll(path)
    append(path, 1, queue=1)
    with pytest.raises(DataLossError, match="1 messages of orders/1, offsets 3 to 3, were deleted before they were"):
        next(follower)


@pytest.mark.parametrize("is_derived", [False, True])
@pytest.mark.parametrize(
    ("count", "problem"),
    [
        (10, "now ends at offset 10, before offset 40"),
        (60, "holds another message"),
        (0, "was read up to offset 40, and"),
    ],
)
def test_a_recreated_queue_is_an_error(tmp_path: Path, count: int, problem: str, *, is_derived: bool) -> None:
    queues = tmp_path / "store" / "consumequeue"
    small_store(tmp_path / "store", 40)
    if is_derived:
        shutil.rmtree(queues)
    follower = segmentlog.open(tmp_path / "store").follow("orders", start="earliest", poll_s=0.01)
    assert next(follower).num_rows == 40
    shutil.rmtree(tmp_path / "store")
    if count:
        small_store(tmp_path / "store", count, body_bytes=30)
    else:
        with StoreBuilder(tmp_path / "store") as builder:
            builder.append(messages(1, topic="payments"))
    if is_derived:
        shutil.rmtree(queues)
    with pytest.raises(DataLossError, match=f"orders/0 {problem}"):
        next(follower)


@pytest.mark.parametrize("value", [0, -1, "1", True, float("nan")])
def test_seconds_are_above_zero(value: object) -> None:
    with pytest.raises(ConfigError, match=r"poll_s=.* is not a number of seconds above 0"):
        checked_seconds("poll_s", value)


def test_a_follower_of_confirmed_messages_waits_for_the_replicas(tmp_path: Path, writer: MessageStore) -> None:
    with pytest.raises(UnconfirmedError, match="no master publishes a confirmed offset"):
        segmentlog.open(writer.path, read_from="confirmed")
    put(writer, "1", "2")
    end = writer.end_offset
    put(writer, "3")
    columns = ["queueId", "queueOffset", "body"]
    with (
        ConfirmationFile(LocalWritableFileSystem(), writer.path, 2) as file,
        segmentlog.open(writer.path, read_from="confirmed") as store,
    ):
        follower = store.follow("orders", start="earliest", columns=columns, poll_s=0.01, timeout_s=0.1)
        assert bodies(list(follower)) == []
        file.publish(end, 2)
        assert store.scan("orders").to_arrow().num_rows == 3
        ahead = store.follow("orders", start=follower.positions, columns=columns, poll_s=0.01, timeout_s=0.1)
        ahead._positions[QueueKey("orders", 0)] = 4  # as before a power cut of the master's host
        assert bodies(list(ahead)) == []
        ahead._positions[QueueKey("orders", 0)] = 5
        ahead._moved.add(QueueKey("orders", 0))
        ahead._batches = ahead._follow()
        with pytest.raises(DataLossError, match="now ends at offset 3, before offset 5"):
            list(ahead)
        again = store.follow("orders", start="earliest", columns=columns, poll_s=0.01, timeout_s=0.1)
        assert bodies(list(again)) == ["0", "1", "2"]
