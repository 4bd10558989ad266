import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.stream.offsets import LastRead, StoreOffset, TopicOffset
from segmentlog.connector.stream.watched_store import WatchedStore
from segmentlog.store import (
    DataLossError,
    MessageStore,
    QueueKey,
    QueueRange,
    ReadFrom,
    Snapshot,
    StoreConfig,
    UnconfirmedError,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.follow import message_identity
from segmentlog.store.log.confirmed import ConfirmationFile
from support import fixtures
from support.lock_holders import held_elsewhere
from support.streams import put
from support.tampering import QueueFiles

CONFIG = StoreConfig(segment_bytes=16 << 10, queue_segment_entries=16, index=False)
T0, T1 = QueueKey("T", 0), QueueKey("T", 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    now = [1_700_000_000_000]

    def clock() -> int:
        now[0] += 10
        return now[0]

    with MessageStore.open(tmp_path / "store", CONFIG, clock=clock) as opened:
        put(opened, 6)
        yield opened


def watch(path: Path | str, **given: str) -> WatchedStore:
    options = parse_read_options({"path": str(path), "subscribe": "T"} | given)
    found = WatchedStore(Snapshot.open(path, read_from=options.read_from), options)
    found.look()
    return found


def at(watched: WatchedStore, last: LastRead | None = None, **queues: int) -> StoreOffset:
    """Make the offset of a stream that stands at some offsets of T's queues: ``q0=3``."""
    positions = {int(name[1:]): position for name, position in queues.items()}
    return StoreOffset(id=watched.id, topics={"T": TopicOffset(queues=positions, last=last)})


def read_last(watched: WatchedStore, offset: int) -> LastRead:
    """Make the mark of a message of T/0."""
    mark = message_identity(watched.snapshot, T0, offset)
    assert mark is not None
    return LastRead(0, offset, mark)


def steps(watched: WatchedStore, before: StoreOffset) -> dict[str, tuple[int | None, int, int]]:
    return {str(step.key): (step.position, step.begin, step.end) for step in watched.steps(before, None)}


def test_the_deleted_front_of_a_new_queue_is_a_loss(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    watched = watch(store.path, failOnDataLoss="false")
    read = at(watched, read_last(watched, 2), q0=3)
    put(store, 200, body=b"x" * 600)
    first = min(Path(store.path, "commitlog").iterdir())
    first.unlink()
    watched.look()
    begin = watched.bounds(T1).min_offset
    assert 3 < begin < 103
    for _ in range(2):  # as while a query waits for more messages
        assert steps(watched, read)["T/1"] == (0, begin, 103)
    said = f"{begin} messages of T/1, offsets 0 to {begin - 1}, were deleted before the queue was first seen"
    assert caplog.text.count(said) == 1
    assert watched.lost["T"] >= begin
    watched.settle()
    caplog.clear()
    assert steps(watched, StoreOffset(id=watched.id))["T/1"] == (None, begin, 103), "the topic may be older"
    assert f"{begin} messages of T/1, offsets 0 to {begin - 1}, are gone" in caplog.text
    assert not watched.lost
    newest = at(watched, read_last(watched, 102), q0=103)
    caplog.clear()
    assert steps(watched, newest) == {"T/1": (None, begin, 103)}, "what was read last is still there"
    assert not caplog.records, "no warning"
    with pytest.raises(DataLossError, match=r"T/1, offsets 0 to .* Keep messages longer"):
        steps(watch(store.path), at(watched, read.topics["T"].last, q0=103))


def test_the_lost_front_of_a_queue_that_came_after_the_target_is_noted_and_the_rest_waits(store: MessageStore) -> None:
    watched = watch(store.path, failOnDataLoss="false")
    read = at(watched, read_last(watched, 2), q0=3)
    put(store, 200, body=b"x" * 600)
    min(Path(store.path, "commitlog").iterdir()).unlink()
    watched.look()
    begin = watched.bounds(T1).min_offset
    assert begin > 0
    assert [each[2:] for each in watched.steps(read, {T0: 3}) if each.key == T1] == [(0, begin, begin)]


def test_a_queue_that_is_gone_is_a_loss_unless_nothing_was_read(store: MessageStore) -> None:
    watched = watch(store.path)
    with pytest.raises(DataLossError, match="T/7 was read up to offset 4, and is gone now"):
        watched.steps(at(watched, q0=3, q1=3, q7=4), None)
    assert steps(watched, at(watched, q0=3, q1=3, q7=0)) == {}


# Which store


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("has_files", [True, False])
def test_a_dledger_broker_that_forgot_its_committed_index_is_waited_for(
    tmp_path: Path, fails: str, *, has_files: bool
) -> None:
    path = fixtures.unpack("dledger-5.3.3", tmp_path)
    if not has_files:
        shutil.rmtree(path / "consumequeue")
    (checkpoint,) = path.glob("dledger-*/checkpoint")
    stated = checkpoint.read_text()
    watched = watch(path, failOnDataLoss=fails, subscribe="Orders")
    first = StoreOffset(id=watched.id)
    ends = {step.key: step.end for step in watched.steps(first, None)}
    assert ends
    read = StoreOffset(
        id=watched.id, topics={"Orders": TopicOffset(queues={key.queue_id: end for key, end in ends.items()})}
    )
    for former in checkpoint.parent.glob("checkpoint.*"):
        former.unlink()
    for text in ("committedIndex=-1", ""):  # after a restart without a checkpoint, and while it is written
        checkpoint.write_text(text)
        forgetful = watch(path, failOnDataLoss=fails, subscribe="Orders")
        watched.look()
        for each in (watched, forgetful):
            assert each.steps(read, None) == []
        for key, end in ends.items():
            with pytest.raises(UnconfirmedError, match="confirmed only up to 0"):
                forgetful.still_there(QueueRange(key, 0, end))
    checkpoint.write_text(stated)
    forgetful.look()
    assert forgetful.steps(read, None) == []
    assert {step.key: step.end for step in forgetful.steps(first, None)} == ends


@pytest.mark.parametrize("fails", ["true", "false"])
def test_messages_that_a_writer_recovers_after_a_crash_are_waited_for(store: MessageStore, fails: str) -> None:
    store.close()
    path = Path(store.path)
    (path / "abort").touch()
    queues = [QueueFiles(path, "T", number) for number in range(2)]
    dispatched = [each.entries for each in queues]
    for each in queues:
        each.zero(2, 3)  # of three
    watched = watch(path, failOnDataLoss=fails)
    read = at(watched, q0=3, q1=3)
    assert steps(watched, read) == {}
    with held_elsewhere(path):
        assert watched.look()
        restarted = watch(path, failOnDataLoss=fails)
        for each in (watched, restarted):
            assert steps(each, read) == {}
            with pytest.raises(UnconfirmedError, match=r"\[0, 3\) was there when .* only up to 2 .*nothing is lost"):
                each.still_there(QueueRange(T0, 0, 3))
        for files, entries in zip(queues, dispatched, strict=True):
            files.entries = entries
        assert watched.look()
        assert steps(watched, read) == {}
        assert watched.still_there(QueueRange(T0, 0, 3)) == QueueRange(T0, 0, 3)
    assert steps(watched, at(watched, q0=2, q1=3)) == {"T/0": (2, 2, 3)}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_messages_that_are_not_confirmed_any_more_are_waited_for(store: MessageStore, fails: str) -> None:
    end = store.end_offset
    with ConfirmationFile(LocalWritableFileSystem(), store.path, 2) as file:
        watched = watch(store.path, readFrom="confirmed", failOnDataLoss=fails)
        assert watched.snapshot.read_from is ReadFrom.CONFIRMED
        assert steps(watched, at(watched, q0=0, q1=0)) == {}
        ahead = at(watched, q0=3, q1=2)  # as before a power cut of the master's host
        assert steps(watched, ahead) == {}
        with pytest.raises(UnconfirmedError, match=r"\[0, 3\).* is confirmed only up to 0"):
            watched.still_there(QueueRange(T0, 0, 3))
        file.publish(end, 2)
        assert watched.look()
        assert steps(watched, ahead) == {"T/1": (2, 2, 3)}
        assert watched.still_there(QueueRange(T0, 0, 3)) == QueueRange(T0, 0, 3)
    watched = watch(store.path, readFrom="confirmed", failOnDataLoss="true")
    with pytest.raises(DataLossError, match="T/0 now ends at offset 3, before offset 4"):
        watched.steps(at(watched, q0=4, q1=2), None)
