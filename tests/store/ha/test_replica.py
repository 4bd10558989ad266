"""Replica: it holds the master's log byte for byte, whatever happens to connections, and refuses another log."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from segmentlog.store import (
    ConfigError,
    DivergedLogError,
    FormatError,
    MessageStore,
    NoSpaceError,
    StaleMasterError,
    StoreReader,
)
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.ha import Address, Begin, Replica, ReplicaConfig, ReplicaState, pacing
from segmentlog.store.ha.handshake import Greeting, answer
from segmentlog.store.log.epochs import find_epochs, supersede, write_epochs
from segmentlog.store.log.segment_supply import SegmentSupply
from support.reading import read
from support.replicas import log_bytes
from support.scripted_master import Script, ScriptedMaster
from support.written_stores import SMALL, message

SEGMENT = SMALL.segment_bytes
PLAIN = replace(SMALL, record_crc=False)
SECONDS = 60


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of some segments."""
    path = tmp_path_factory.mktemp("master") / "first"
    with MessageStore.open(path, PLAIN) as store:
        for serial in range(450):
            store.append(message(5, 1, serial))
    return path


@pytest.fixture(scope="module")
def log(first: Path) -> bytes:
    whole = log_bytes(first)
    with MessageStore.open(first, PLAIN) as store:
        return whole[: store.end_offset]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_S", 0.01)


@contextmanager
def following(path: Path, master: ScriptedMaster, **settings: object) -> Iterator[Replica]:
    """Run a replica; an error of its thread is raised at the end."""
    config = ReplicaConfig(probe_s=0.3, **settings)  # type: ignore[arg-type]
    stop, errors = threading.Event(), []

    def run() -> None:
        try:
            replica.run(stop)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    with Replica.open(str(path), Address("127.0.0.1", master.port), PLAIN, config=config) as replica:
        thread = threading.Thread(target=run, name="replica")
        thread.start()
        try:
            yield replica
        finally:
            stop.set()
            thread.join()
    for error in errors:
        raise error


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        alive = [each for each in threading.enumerate() if each.name == "replica"]
        assert alive or condition(), "the replica ended"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@pytest.mark.slow
def test_a_replica_is_the_masters_log(tmp_path: Path, first: Path, log: bytes) -> None:
    first_end = 0
    while first_end < 19_000:  # whole records: a heartbeat within one would be damage
        first_end += int.from_bytes(log[first_end : first_end + 4], "big")
    with ScriptedMaster(log[:first_end], 0, SEGMENT) as master, following(tmp_path / "copy", master) as replica:
        until(lambda: replica.status.end == first_end)
        master.log += log[first_end:]
        until(lambda: replica.status.end == len(log))
        until(lambda: replica.status.lag_bytes == 0 and replica.status.lag_s == 0)
        until(lambda: master.reports[-1:] == [len(log)])
        assert replica.status.state is ReplicaState.FOLLOWING
        assert replica.status.received_bytes >= len(log)
    assert log_bytes(tmp_path / "copy")[: len(log)] == log
    assert replica.status.state is ReplicaState.STOPPED
    copied, written = read(StoreReader.open(tmp_path / "copy")), read(StoreReader.open(first))
    assert [row | {"brokerName": "first"} for row in copied] == list(written)


@pytest.mark.parametrize("expired", [0, 1, 2, 3])
def test_an_empty_replica_begins_at_the_first_segment_that_is_there(tmp_path: Path, log: bytes, expired: int) -> None:
    base = expired * SEGMENT
    assert base < len(log) - len(log) % SEGMENT
    with (
        ScriptedMaster(log[base:], base, SEGMENT) as master,
        following(tmp_path / "copy", master, begin=Begin.FIRST) as replica,
    ):
        until(lambda: replica.status.end == len(log))
    assert log_bytes(tmp_path / "copy")[: len(log) - base] == log[base:]
    assert master.requests[0] == 0
    assert master.requests[-1] == max(base, 1)


def test_it_may_begin_at_the_last_segment(tmp_path: Path, log: bytes) -> None:
    base = len(log) - len(log) % SEGMENT
    with (
        ScriptedMaster(log, 0, SEGMENT) as master,
        following(tmp_path / "copy", master, begin=Begin.LAST) as replica,
    ):
        until(lambda: replica.status.end == len(log))
    assert log_bytes(tmp_path / "copy")[: len(log) - base] == log[base:]
    assert master.requests == [0]


def sends_no_heartbeat(connection: socket.socket, master: ScriptedMaster) -> None:
    """Send the log, which may end within a record: a heartbeat there would be damage."""
    at = master.request(connection)
    connection.settimeout(None)
    while at < master.end:
        stop = min(at + master.frame_bytes, at - at % SEGMENT + SEGMENT, master.end)
        master.send(connection, at, bytes(master.log[at:stop]))
        at = stop
    while connection.recv(4096):
        pass


@pytest.mark.slow
def test_it_goes_on_after_it_was_closed(tmp_path: Path, log: bytes) -> None:
    for stop in (*range(15_000, len(log), 15_000), len(log)):
        with (
            ScriptedMaster(log[:stop], 0, SEGMENT, sends_no_heartbeat) as master,
            following(tmp_path / "copy", master) as replica,
        ):
            until(lambda: replica.status.end + replica.status.lag_bytes == stop)  # noqa: B023
    with ScriptedMaster(log, 0, SEGMENT) as master, following(tmp_path / "copy", master) as replica:
        until(lambda: replica.status.end == len(log))
    assert log_bytes(tmp_path / "copy")[: len(log)] == log


def closes(after: int) -> Script:
    return lambda connection, master: master.serve(connection, after)


def jumps(connection: socket.socket, master: ScriptedMaster) -> None:
    at = master.request(connection)
    master.send(connection, at + 1, bytes(master.log[at - master.base + 1 :][:100]))
    connection.recv(1)


def repeats(connection: socket.socket, master: ScriptedMaster) -> None:
    at = master.request(connection)
    data = bytes(master.log[at - master.base :][:100])
    for _ in range(2):
        master.send(connection, at, data)
    connection.recv(1)


def sends(data: bytes) -> Script:
    def script(connection: socket.socket, master: ScriptedMaster) -> None:
        master.request(connection)
        connection.sendall(data)
        connection.recv(100)

    return script


def sends_garbage_records(connection: socket.socket, master: ScriptedMaster) -> None:
    at = master.request(connection)
    held = bytes(master.log[at - master.base :][:20_000])
    master.send(connection, at, held[: SEGMENT - at % SEGMENT - 200])
    master.send(connection, at + len(held[: SEGMENT - at % SEGMENT - 200]), bytes(range(150)))
    connection.recv(1)


HOSTILE = [
    closes(9_000),
    jumps,
    repeats,
    sends(b""),
    sends(struct.pack(">qi", -2, 10)),
    sends(struct.pack(">qi", 0, -1)),
    sends(struct.pack(">qi", 0, (1 << 31) - 1) + b"x" * 100),
    sends(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    sends_garbage_records,
    closes(12_001),
]


@pytest.mark.slow
def test_hostile_connections_change_nothing(tmp_path: Path, log: bytes) -> None:
    script: list[Script] = [closes(1 << 40), closes(1 << 40), *HOSTILE]  # the last segment, a probe, then the log
    with ScriptedMaster(log, 0, SEGMENT, *script) as master, following(tmp_path / "copy", master) as replica:
        until(lambda: replica.status.end == len(log))
        assert replica.status.connections >= len(script)
        until(lambda: replica.status.problem == "")
    assert log_bytes(tmp_path / "copy")[: len(log)] == log


def test_hostile_answers_change_nothing(copy: Path, log: bytes) -> None:
    before, damaged = log_bytes(copy), answer(Greeting(0, Epochs((Epoch(1, 0, 9),))))[:-1] + b"x"
    sent = [struct.pack(">qi", -1, -1), struct.pack(">qi", -1, (1 << 31) - 1) + b"x" * 100, damaged]
    with ScriptedMaster(log, 0, SEGMENT, *map(sends, sent)) as master, following(copy, master) as replica:
        until(lambda: replica.status.state is ReplicaState.FOLLOWING)
        assert replica.status.connections == 4
    assert log_bytes(copy) == before
    assert find_epochs(LocalFileSystem(), str(copy)) == Epochs()


def other_log(tmp_path: Path, log: bytes) -> bytes:
    with MessageStore.open(tmp_path / "other", PLAIN) as store:
        for serial in range(900):
            store.append(message(6, 1, serial))
    return log_bytes(tmp_path / "other")[: len(log)]


def follow_to_the_end(
    path: Path, log: bytes, segment_bytes: int = SEGMENT, scripts: Sequence[Script] = ()
) -> ScriptedMaster:
    """Follow a master until the replica gives up; raise its error."""
    with ScriptedMaster(log, 0, segment_bytes, *scripts) as master, following(path, master) as replica:
        until(lambda: replica.status.state is ReplicaState.FAILED)
    return master


@pytest.fixture
def copy(tmp_path: Path, log: bytes) -> Path:
    """Return a replica that has the log."""
    with ScriptedMaster(log, 0, SEGMENT) as master, following(tmp_path / "copy", master) as replica:
        until(lambda: replica.status.end == len(log))
    return tmp_path / "copy"


@pytest.mark.slow
def test_another_log_is_refused_and_nothing_is_truncated(tmp_path: Path, copy: Path, log: bytes) -> None:
    before, other = log_bytes(copy), other_log(tmp_path, log)
    with pytest.raises(DivergedLogError, match=f"; this one ends at {len(log)}"):
        follow_to_the_end(copy, other)
    assert log_bytes(copy) == before


def answers(*greetings: Greeting, told: list[int] | None = None) -> list[Script]:
    """Scripts of a master of segmentlog, one connection each; ``told`` gets what the replica reports at the end."""

    def script(connection: socket.socket, master: ScriptedMaster, greeting: Greeting) -> None:
        connection.sendall(answer(greeting))
        if told is None:
            master.serve(connection)
            return
        master.request(connection)
        told.extend(struct.unpack(">q", connection.recv(8, socket.MSG_WAITALL)))

    return [partial(script, greeting=each) for each in greetings]


@pytest.fixture
def adopted_first(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Newest epoch of the replica at each of its appends."""
    append, found = MessageStore.append_encoded, []

    def noted(store: MessageStore, offset: int, data: bytes) -> int:
        found.append(find_epochs(LocalFileSystem(), store.path).newest)
        return append(store, offset, data)

    monkeypatch.setattr(MessageStore, "append_encoded", noted)
    return found


def test_a_replica_adopts_the_epochs_before_it_appends(tmp_path: Path, log: bytes, adopted_first: list[int]) -> None:
    half, epochs = 20_000, Epochs((Epoch(2, 21_000, 9),))
    scripts = answers(*[Greeting(half, Epochs())] * 3)
    with ScriptedMaster(log[:half], 0, SEGMENT, *scripts) as master, following(tmp_path / "copy", master) as replica:
        until(lambda: replica.status.lag_bytes == 0 and replica.status.end > half - 3000)
    assert set(adopted_first) == {0}
    adopted_first.clear()
    scripts = answers(Greeting(len(log), epochs))
    with ScriptedMaster(log, 0, SEGMENT, *scripts) as master, following(tmp_path / "copy", master) as replica:
        until(lambda: replica.status.end == len(log))
    assert set(adopted_first) == {2}
    assert find_epochs(LocalFileSystem(), str(tmp_path / "copy")) == epochs


def test_a_master_that_parted_before_our_end_is_refused_though_its_end_moves(copy: Path, log: bytes) -> None:
    before, other = log_bytes(copy), Epochs((Epoch(2, 30_000, 9),))
    scripts = answers(*[Greeting(end, other) for end in (40_000, 40_001, 40_002)])
    with pytest.raises(DivergedLogError, match=f"ends at {len(log)}; they are of the same masters before 30000 only"):
        follow_to_the_end(copy, log, scripts=scripts)
    assert log_bytes(copy) == before
    assert find_epochs(LocalFileSystem(), str(copy)) == Epochs()


@pytest.mark.parametrize("is_known", ["as its newest", "by a refusal"])
def test_a_stale_master_is_refused_and_told(copy: Path, log: bytes, is_known: str) -> None:
    fs, before, told = LocalWritableFileSystem(), log_bytes(copy), []
    if is_known == "as its newest":
        write_epochs(fs, str(copy), Epochs((Epoch(6, len(log), 9),)))
    else:
        supersede(fs, str(copy), 6)
    scripts = answers(*[Greeting(len(log), Epochs((Epoch(5, 0, 3),)))] * 4, told=told)
    with pytest.raises(StaleMasterError, match="is of epoch 5, and this replica knows the master of epoch 6"):
        follow_to_the_end(copy, log, scripts=scripts)
    assert told == [-7, -7, -7]
    assert log_bytes(copy) == before


def test_a_master_without_epochs_is_followed_as_ever(tmp_path: Path, copy: Path, log: bytes) -> None:
    epochs = Epochs((Epoch(6, 30_000, 9),))
    write_epochs(LocalWritableFileSystem(), str(copy), epochs)
    with MessageStore.open(tmp_path / "more", PLAIN) as store:
        store.append_encoded(0, log)
        store.append(message(5, 2, 0))
        end = store.end_offset
    more = log_bytes(tmp_path / "more")[:end]
    with ScriptedMaster(more, 0, SEGMENT) as master, following(copy, master) as replica:
        until(lambda: replica.status.end == end)
    assert find_epochs(LocalFileSystem(), str(copy)) == epochs


@pytest.mark.slow
def test_a_difference_has_to_be_found_three_times(
    tmp_path: Path, copy: Path, log: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    other = other_log(tmp_path, log)
    with pytest.raises(DivergedLogError):
        follow_to_the_end(copy, other)
    levels = [line.levelname for line in caplog.records if "differs from this one" in line.getMessage()]
    assert levels == ["WARNING", "WARNING", "ERROR"]  # the third was raised


def test_an_unexpected_end_is_logged_and_in_the_status(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(store: MessageStore, offset: int, data: bytes) -> int:
        raise RuntimeError("planted")

    monkeypatch.setattr(MessageStore, "append_encoded", fail)
    with (
        ScriptedMaster(log, 0, SEGMENT) as master,
        Replica.open(str(tmp_path / "copy"), Address("127.0.0.1", master.port), PLAIN) as replica,
    ):
        with pytest.raises(RuntimeError, match="planted"):
            replica.run(threading.Event())
        assert (replica.status.state, replica.status.problem) == (ReplicaState.FAILED, "planted")
    (ended,) = [line for line in caplog.records if line.levelname == "ERROR"]
    assert "it follows no more: planted" in ended.getMessage()


def test_a_master_that_lost_its_end_is_refused(copy: Path, log: bytes) -> None:
    before, lost = log_bytes(copy), len(log) - 3_000
    with pytest.raises(DivergedLogError, match=f"nothing at physical offset {lost}, and this log ends at {len(log)}"):
        follow_to_the_end(copy, log[:lost])
    assert log_bytes(copy) == before


def test_a_damaged_log_is_refused(tmp_path: Path, log: bytes) -> None:
    damaged = bytearray(log)
    damaged[40_000:41_000] = b"\xff" * 1000
    with pytest.raises(FormatError, match="no whole record begins here"):
        follow_to_the_end(tmp_path / "copy", bytes(damaged))
    with MessageStore.open(tmp_path / "copy", PLAIN) as store:
        assert store.end_offset <= 40_000


def test_a_record_that_never_becomes_whole_is_damage(tmp_path: Path, log: bytes) -> None:
    with pytest.raises(FormatError, match=f"nothing after physical offset {len(log) - 1}, and no whole record begins"):
        follow_to_the_end(tmp_path / "copy", log[:-1])
    with MessageStore.open(tmp_path / "copy", PLAIN) as store:
        assert len(log) - 3000 < store.end_offset < len(log)


def test_segments_of_another_size_are_refused(tmp_path: Path, log: bytes) -> None:
    with pytest.raises(ConfigError, match="segment_bytes"):
        follow_to_the_end(tmp_path / "copy", log[: SEGMENT // 2 + 9], SEGMENT // 2)


def test_a_full_disk_pauses_it(tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    take, full = SegmentSupply.take, threading.Event()
    full.set()

    def limited(supply: SegmentSupply, base: int) -> object:
        if base and full.is_set():
            raise NoSpaceError("there is no room")
        return take(supply, base)

    monkeypatch.setattr(SegmentSupply, "take", limited)
    with ScriptedMaster(log, 0, SEGMENT) as master, following(tmp_path / "copy", master) as replica:
        until(lambda: "there is no room" in replica.status.problem)
        assert replica.status.state is ReplicaState.PAUSED
        full.clear()
        until(lambda: replica.status.end == len(log))
    assert log_bytes(tmp_path / "copy")[: len(log)] == log


@pytest.mark.slow
def test_the_limit_on_bytes_per_second_holds(tmp_path: Path, log: bytes) -> None:
    rate = len(log) // 3
    began = time.monotonic()
    with (
        ScriptedMaster(log, 0, SEGMENT) as master,
        following(tmp_path / "copy", master, bytes_per_s=rate) as replica,
    ):
        until(lambda: replica.status.end == len(log))
    assert time.monotonic() - began > 1.5  # the first second's worth comes at once
