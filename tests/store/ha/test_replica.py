import random
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import (
    ConfigError,
    DivergedLogError,
    FormatError,
    MessageStore,
    NoSpaceError,
    ReplicationError,
    Snapshot,
    StaleMasterError,
)
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.ha import Address, Begin, Replica, ReplicaState
from segmentlog.store.ha import replica as module
from segmentlog.store.ha.link import Link
from segmentlog.store.ha.protocol import Greeting, answer
from segmentlog.store.ha.replica import Backoff, TokenBucket, find_first_segment, serves_segment
from segmentlog.store.log.appender import SegmentSupply
from segmentlog.store.log.epochs import find_epochs, supersede, write_epochs
from support import replicas
from support.reading import read
from support.replicas import log_bytes, until
from support.scripted_master import Script, ScriptedMaster
from support.written_stores import SMALL, message

pytestmark = pytest.mark.usefixtures("frequent_heartbeats")

SEGMENT = SMALL.segment_bytes
PLAIN = replace(SMALL, record_crc=False)
following = partial(replicas.following, store_config=PLAIN, probe_s=0.3)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    for pause in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(module, pause, 0.02)


@pytest.mark.slow
def test_a_replica_is_the_masters_log(tmp_path: Path, first: Path, log: bytes) -> None:
    first_end = 0
    while first_end < 19_000:  # whole records: a heartbeat within one would be damage
        first_end += int.from_bytes(log[first_end : first_end + 4], "big")
    with ScriptedMaster(log[:first_end], 0, SEGMENT) as master, following(tmp_path / "copy", master.port) as replica:
        until(lambda: replica.status.end == first_end)
        master.log += log[first_end:]
        until(lambda: replica.status.end == len(log))
        until(lambda: replica.status.lag_bytes == 0 and replica.status.lag_s == 0)
        until(lambda: master.reports[-1:] == [len(log)])
        assert replica.status.state is ReplicaState.FOLLOWING
        assert replica.status.received_bytes >= len(log)
    assert log_bytes(tmp_path / "copy")[: len(log)] == log
    assert replica.status.state is ReplicaState.STOPPED
    copied, written = read(Snapshot.open(tmp_path / "copy")), read(Snapshot.open(first))
    assert [row | {"brokerName": "first"} for row in copied] == list(written)


@pytest.mark.parametrize("expired", [0, 1, 2, 3])
def test_an_empty_replica_begins_at_the_first_segment_that_is_there(tmp_path: Path, log: bytes, expired: int) -> None:
    base = expired * SEGMENT
    assert base < len(log) - len(log) % SEGMENT
    with (
        ScriptedMaster(log[base:], base, SEGMENT) as master,
        following(tmp_path / "copy", master.port, begin=Begin.FIRST) as replica,
    ):
        until(lambda: replica.status.end == len(log))
    assert log_bytes(tmp_path / "copy")[: len(log) - base] == log[base:]
    assert master.requests[0] == 0
    assert master.requests[-1] == max(base, 1)


def test_a_replica_whose_first_segment_is_deleted_before_it_is_copied_looks_for_the_next_one(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def find(*arguments: Any) -> int:
        found.append(find_first_segment(*arguments))
        if len(found) == 1:
            del master.log[:SEGMENT]
            master.base = SEGMENT
        return found[-1]

    monkeypatch.setattr(module, "find_first_segment", find)
    with (
        ScriptedMaster(log, 0, SEGMENT) as master,
        following(tmp_path / "copy", master.port, begin=Begin.FIRST) as replica,
    ):
        until(lambda: replica.status.end == len(log), seconds=60)
    assert log_bytes(tmp_path / "copy")[: len(log) - SEGMENT] == log[SEGMENT:]
    assert found == [0, SEGMENT]


def test_it_may_begin_at_the_last_segment(tmp_path: Path, log: bytes) -> None:
    base = len(log) - len(log) % SEGMENT
    with (
        ScriptedMaster(log, 0, SEGMENT) as master,
        following(tmp_path / "copy", master.port, begin=Begin.LAST) as replica,
    ):
        until(lambda: replica.status.end == len(log))
    assert log_bytes(tmp_path / "copy")[: len(log) - base] == log[base:]
    assert master.requests == [0]


def sends(data: bytes) -> Script:
    def script(connection: socket.socket, master: ScriptedMaster) -> None:
        master.request(connection)
        connection.sendall(data)
        if data:  # a replica that gets nothing would wait for its next heartbeat
            connection.recv(100)

    return script


def test_hostile_connections_change_nothing(copy: Path, log: bytes) -> None:
    before, damaged = log_bytes(copy), answer(Greeting(0, Epochs((Epoch(1, 0, 9),))))[:-1] + b"x"
    frames = [(-1, -1), (-1, (1 << 31) - 1), (-2, 10), (0, -1), (0, (1 << 31) - 1), (len(log) + 1, 10), (0, 10)]
    sent = [struct.pack(">qi", *frame) + b"x" * 100 for frame in frames] + [damaged, b"", b"GET / HTTP/1.1\r\n\r\n"]
    with ScriptedMaster(log, 0, SEGMENT, *map(sends, sent)) as master, following(copy, master.port) as replica:
        until(lambda: replica.status.state is ReplicaState.FOLLOWING)
        assert replica.status.connections == len(sent) + 1
        assert replica.status.problem == ""
    assert log_bytes(copy) == before
    assert find_epochs(LocalFileSystem(), str(copy)) == Epochs()


def follow_to_the_end(
    path: Path, log: bytes, segment_bytes: int = SEGMENT, scripts: Sequence[Script] = ()
) -> ScriptedMaster:
    with ScriptedMaster(log, 0, segment_bytes, *scripts) as master, following(path, master.port) as replica:
        until(lambda: replica.status.state is ReplicaState.FAILED)
    return master


@pytest.fixture
def copy(tmp_path: Path, log: bytes) -> Path:
    with ScriptedMaster(log, 0, SEGMENT) as master, following(tmp_path / "copy", master.port) as replica:
        until(lambda: replica.status.end == len(log))
    return tmp_path / "copy"


@pytest.mark.slow
def test_another_log_is_refused_after_three_looks_and_nothing_is_truncated(
    tmp_path: Path, copy: Path, log: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before = log_bytes(copy)
    with MessageStore.open(tmp_path / "other", PLAIN) as store:
        for serial in range(900):
            store.append(message(6, 1, serial))
    with pytest.raises(DivergedLogError, match=f"; this one ends at {len(log)}"):
        follow_to_the_end(copy, log_bytes(tmp_path / "other")[: len(log)])
    assert log_bytes(copy) == before
    levels = [line.levelname for line in caplog.records if "differs from this one" in line.getMessage()]
    assert levels == ["WARNING", "WARNING", "ERROR"]  # the third was raised


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
    with (
        ScriptedMaster(log[:half], 0, SEGMENT, *scripts) as master,
        following(tmp_path / "copy", master.port) as replica,
    ):
        until(lambda: replica.status.lag_bytes == 0 and replica.status.end > half - 3000)
    assert set(adopted_first) == {0}
    adopted_first.clear()
    scripts = answers(Greeting(len(log), epochs))
    with ScriptedMaster(log, 0, SEGMENT, *scripts) as master, following(tmp_path / "copy", master.port) as replica:
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
    with ScriptedMaster(more, 0, SEGMENT) as master, following(copy, master.port) as replica:
        until(lambda: replica.status.end == end)
    assert find_epochs(LocalFileSystem(), str(copy)) == epochs


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
    assert "failed and has stopped following: planted" in ended.getMessage()


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
    take, full = SegmentSupply.take_segment, threading.Event()
    full.set()

    def limited(supply: SegmentSupply, base: int) -> object:
        if base and full.is_set():
            raise NoSpaceError("there is no room")
        return take(supply, base)

    monkeypatch.setattr(SegmentSupply, "take_segment", limited)
    with ScriptedMaster(log, 0, SEGMENT) as master, following(tmp_path / "copy", master.port) as replica:
        until(lambda: (now := replica.status).state is ReplicaState.PAUSED and "there is no room" in now.problem)
        full.clear()
        until(lambda: replica.status.end == len(log))
    assert log_bytes(tmp_path / "copy")[: len(log)] == log


# First segment


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1024, 1 << 30))
def test_the_first_served_segment_is_found_with_few_questions(first: int, more: int, size: int) -> None:
    last, asked = (first + more) * size, []

    def is_served(base: int) -> bool:
        asked.append(base)
        return base >= first * size

    assert find_first_segment(is_served, last, size) == first * size
    assert len(asked) <= 11
    assert all(base % size == 0 and base <= last for base in asked)


def test_a_closed_connection_is_an_error_instead_of_an_answer() -> None:
    master, ours = socket.socketpair()
    with Link(ours) as link:
        master.shutdown(socket.SHUT_WR)
        with master, pytest.raises(ReplicationError, match="closed the connection"):
            serves_segment(link, 4096, 4096, 5)


# Pauses and the limit


def test_pauses_double_and_are_spread() -> None:
    backoff = Backoff(random.Random(1))
    pauses = [backoff.next_s() for _ in range(12)]
    means = [min(module.FIRST_PAUSE_S * 2**each, module.LONGEST_PAUSE_S) for each in range(12)]
    assert all(mean / 2 <= pause <= mean * 1.5 for pause, mean in zip(pauses, means, strict=True))
    assert len({pause / mean for pause, mean in zip(pauses, means, strict=True)}) == 12
    backoff.reset()
    assert backoff.next_s() <= module.FIRST_PAUSE_S * 1.5


def test_no_more_than_the_rate_is_received() -> None:
    bucket, now, received = TokenBucket(1000, 0.0), 0.0, 0
    for _ in range(1000):
        size = bucket.allowed(300, now)
        bucket.count_received(size)
        received += size
        now += bucket.wait_s(300) + 0.001
    assert 1000 * (now - 1) <= received <= 1000 * (now + 1)
    assert now > 100
    bucket = TokenBucket(1000, 0.0)
    bucket.count_received(bucket.allowed(1 << 20, 0.0))
    assert bucket.wait_s(1 << 20) == 1.0, "a large piece waits for a second at most"
    assert bucket.allowed(1 << 20, 50.0) == 1000
    bucket = TokenBucket(None, 0.0)
    bucket.count_received(1 << 40)
    assert (bucket.allowed(1 << 20, 0.0), bucket.wait_s(1 << 20)) == (1 << 20, 0.0)
