import contextlib
import errno
import logging
import os
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from segmentlog.store import ConfigError, MessageStore, NoReplicaError, ReplicationError, StaleMasterError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.ha import Attachments, Quorum, ReplicaState, ReplicationServer, ServerConfig, master, server
from segmentlog.store.ha.protocol import Greeting, Handshake
from segmentlog.store.ha.server import Places, RareLines
from segmentlog.store.log.confirmed import confirmed_offset
from segmentlog.store.log.epochs import check_current, find_epochs, write_epochs
from support import certificates, replicas
from support.parted_store import PartedStore
from support.replicas import log_bytes, until
from support.scale import scale
from support.written_stores import SMALL, message

pytestmark = pytest.mark.usefixtures("frequent_heartbeats")

PLAIN = replace(SMALL, record_crc=False)
SERVER = ServerConfig(port=0)
following = partial(replicas.following, store_config=PLAIN, probe_s=0.3)


@contextmanager
def serving(path: Path, copies: int = 1, port: int = 0) -> Iterator[tuple[PartedStore, ReplicationServer]]:
    quorum = Quorum(copies, timeout_s=30)
    with (
        PartedStore.open(path, PLAIN, attached=Attachments(acknowledgers=[quorum], listeners=[quorum])) as store,
        ReplicationServer(store, quorum, ServerConfig(port=port)) as server,
    ):
        yield store, server


def put(store: MessageStore, first: int, count: int) -> None:
    for serial in range(first, first + count):
        store.append(message(7, 1, serial))


def test_the_first_record_of_an_empty_master_arrives_over_the_first_connection(tmp_path: Path) -> None:
    with serving(tmp_path / "first") as (store, server), following(tmp_path / "copy", server.port) as replica:
        until(lambda: replica.status.state in {ReplicaState.VERIFYING, ReplicaState.FOLLOWING})
        put(store, 0, 1)
        until(lambda: replica.status.end == store.end_offset)
        assert replica.status.connections == 1


def test_an_append_is_on_the_replica_when_it_returns(tmp_path: Path) -> None:
    with serving(tmp_path / "first", copies=2) as (store, server):
        with pytest.raises(NoReplicaError, match="SLAVE_NOT_AVAILABLE"):
            store.append(message(7, 1, 0))
        with following(tmp_path / "copy", server.port) as replica:
            until(lambda: None not in server.replicas.values() and bool(server.replicas))
            for serial in range(1, 60):
                placed = store.append(message(7, 1, serial))
                assert replica.store.end_offset >= placed.physical_offset + placed.size
            pending = [store.append_async(message(7, 1, serial)) for serial in range(60, 160)]
            for each in pending:
                placed = each.result()
                assert replica.store.end_offset >= placed.physical_offset + placed.size
        with pytest.raises(NoReplicaError):
            put(store, 60, 1000)


def test_bytes_of_a_batch_in_flight_are_not_sent(tmp_path: Path) -> None:
    with serving(tmp_path / "first") as (store, server):
        put(store, 0, 20)
        with following(tmp_path / "copy", server.port) as replica:
            until(lambda: replica.status.end == store.end_offset)
            start = store.end_offset
            marker = store.parts.base.opened.marker
            marker.write(BatchMark(sequence=1, start=start, stop=start, in_flight=True))
            assert marker.in_flight
            put(store, 20, 20)
            time.sleep(0.3)
            assert store.settled_offset == start == replica.status.end
            marker.write(BatchMark(sequence=1, start=start, stop=store.end_offset))
            until(lambda: replica.status.end == store.end_offset)


GARBAGE = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    struct.pack(">q", -1),
    struct.pack(">q", 1 << 62),
    struct.pack(">qq", 1, 1 << 40),
    struct.pack(">qqq", 1, 500, 2),
    b"1234567",
]


@pytest.mark.slow
@pytest.mark.scaled
def test_hostile_peers_get_nothing_and_harm_no_replica(tmp_path: Path) -> None:
    draw = random.Random(4)
    count = scale(200, 2_000, 1_000_000)
    with serving(tmp_path / "first") as (store, server):
        put(store, 0, 50)
        with following(tmp_path / "copy", server.port) as replica:
            until(lambda: replica.status.end == store.end_offset)
            for number in range(count):
                garbage = GARBAGE[number] if number < len(GARBAGE) else draw.randbytes(draw.randrange(40))
                with socket.create_connection(("127.0.0.1", server.port)) as peer, contextlib.suppress(OSError):
                    peer.sendall(garbage)
            put(store, 50, 50)
            until(lambda: replica.status.end == store.end_offset)
            until(lambda: len(server.replicas) == 1)
            assert replica.status.connections <= 3


def test_only_allowed_networks_may_connect(tmp_path: Path) -> None:
    quorum = Quorum()
    with MessageStore.open(tmp_path / "first", PLAIN) as store:
        put(store, 0, 5)
        config = ServerConfig(port=0, allowed=("10.0.0.0/8",))
        with (
            ReplicationServer(store, quorum, config) as server,
            socket.create_connection(("127.0.0.1", server.port)) as peer,
        ):
            peer.settimeout(10)
            with contextlib.suppress(OSError):
                assert peer.recv(1) == b""
            assert server.replicas == {}
    with pytest.raises(ConfigError, match="allowed names 'here', which is not a network"):
        ServerConfig(allowed=("here",))
    with pytest.raises(ConfigError, match="connections_per_address is 0"):
        ServerConfig(connections_per_address=0)


def test_connections_leave_most_descriptors_to_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    with serving(tmp_path / "first") as (_, server), contextlib.ExitStack() as stack:
        silent_connections(server.port, 30, stack)
        with socket.create_connection(("127.0.0.1", server.port)) as last:
            asked(last, -1, 0)
            assert len(server.replicas) == 10


@pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING))
def test_replicas_of_the_same_authority_follow_by_tls(tmp_path: Path) -> None:
    authority = certificates.Authority(tmp_path / "ca")
    master, ours = authority.sign("master"), authority.sign("replica")
    stranger = certificates.Authority(tmp_path / "other").sign("stranger")
    quorum = Quorum(2, timeout_s=30)
    with (
        MessageStore.open(
            tmp_path / "first", PLAIN, attached=Attachments(acknowledgers=[quorum], listeners=[quorum])
        ) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0, tls=master)) as server,
        following(tmp_path / "plain", server.port) as plain,
        following(tmp_path / "stranger", server.port, tls=stranger) as refused,
        socket.create_connection(("127.0.0.1", server.port)) as silent,
        following(tmp_path / "copy", server.port, tls=ours) as replica,
    ):
        with pytest.raises(NoReplicaError):
            put(store, 0, 1)
        until(lambda: any(each is not None for each in server.replicas.values()))
        put(store, 1, 30)  # each returns when the replica has it
        until(lambda: replica.status.end == store.end_offset)
        end = store.end_offset
        until(lambda: "certificate verify failed" in refused.status.problem)
        until(lambda: plain.status.problem != "")
        assert plain.status.end == refused.status.end == 0
        silent.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            silent.recv(1)
    assert log_bytes(tmp_path / "copy")[:end] == log_bytes(tmp_path / "first")[:end]


EPOCHS = Epochs((Epoch(3, 0, 9),))


def written(path: Path) -> Path:
    """Return a store with a record: an empty log is acknowledged after 5 s."""
    with MessageStore.open(path, PLAIN) as store:
        put(store, 100, 1)
    return path


def asked(peer: socket.socket, *reports: int) -> Greeting:
    """Report to a server; return the answer that it sends first."""
    peer.sendall(struct.pack(f">{len(reports)}q", *reports))
    peer.settimeout(60)
    handshake = Handshake()
    while not handshake.is_over:
        handshake.strip_answer(peer.recv(1))
    assert handshake.greeting is not None
    return handshake.greeting


def closed(peer: socket.socket) -> bool:
    """Read until the server closes the connection."""
    with contextlib.suppress(ConnectionError):
        while peer.recv(4096):
            pass
    return True


def test_only_a_replica_that_asks_is_told_the_epochs(tmp_path: Path) -> None:
    with serving(tmp_path / "first") as (store, server):
        put(store, 0, 5)
        write_epochs(LocalWritableFileSystem(), store.path, EPOCHS)
        for reports in ((-1,), (-1, 0), (-1, 1)):
            with socket.create_connection(("127.0.0.1", server.port)) as peer:
                assert asked(peer, *reports) == Greeting(store.end_offset, EPOCHS)
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(struct.pack(">q", 1))
            peer.settimeout(60)
            assert struct.unpack(">qi", peer.recv(12, socket.MSG_WAITALL)) == (1, store.end_offset - 1)


def test_replicas_learn_of_a_promotion_before_more_bytes_are_sent(tmp_path: Path) -> None:
    fs = LocalWritableFileSystem()
    with serving(tmp_path / "a") as (store, server):
        put(store, 0, 5)
        quorum = Quorum()
        with (
            following(tmp_path / "b", server.port, listeners=[quorum]) as middle,
            ReplicationServer(middle.store, quorum, SERVER) as second,
            following(tmp_path / "c", second.port) as last,
            socket.create_connection(("127.0.0.1", server.port)) as rocketmqs,
        ):
            rocketmqs.sendall(struct.pack(">q", store.end_offset))
            until(lambda: last.status.end == store.end_offset)
            until(lambda: len(server.replicas) == 2)
            epochs = Epochs()
            for number in (3, 4):
                epochs = epochs.promoted(store.end_offset, 9, above=number - 1)
                write_epochs(fs, store.path, epochs)
                put(store, 5 * number, 5)
                until(lambda: last.status.end == store.end_offset)
                assert find_epochs(fs, str(tmp_path / "b")) == find_epochs(fs, str(tmp_path / "c")) == epochs
            assert middle.status.connections == 3
            assert len(server.replicas) == 2, "a slave that did not ask stays"


def test_without_tls_a_claim_is_logged_and_ends_its_connection_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(written(tmp_path / "first"), copies=2) as (store, server):
        write_epochs(LocalWritableFileSystem(), store.path, EPOCHS)
        with following(tmp_path / "copy", server.port) as replica:
            until(lambda: None not in server.replicas.values() and bool(server.replicas))
            for claim, claimed in ((2, None), (3, None), (5, 5), (4, 5)):
                with socket.create_connection(("127.0.0.1", server.port)) as peer:
                    asked(peer, -1, 0)
                    peer.sendall(struct.pack(">q", -1 - claim))
                    assert closed(peer)
                assert server.claimed_epoch == claimed
            placed = store.append(message(7, 1, 1))
            assert server.confirmed == replica.status.end == placed.physical_offset + placed.size
            assert server.problem == ""
    check_current(LocalWritableFileSystem(), str(tmp_path / "first"))
    claims = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert len(claims) == 1, "one line per address and minute"
    assert "claims that the master of epoch 5 has replaced this one, of epoch 3" in claims[0]


@pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING))
def test_a_replica_by_tls_ends_a_master_that_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The store itself looks once: on a slow machine its own error would come first.
    monkeypatch.setattr("segmentlog.store.write.message_store._CURRENT_S", 1e9)
    authority = certificates.Authority(tmp_path / "ca")
    fs, quorum = LocalWritableFileSystem(), Quorum(2, timeout_s=60)
    with (
        MessageStore.open(
            written(tmp_path / "first"), PLAIN, attached=Attachments(acknowledgers=[quorum], listeners=[quorum])
        ) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0, tls=authority.sign("master"))) as server,
    ):
        with following(tmp_path / "copy", server.port, tls=authority.sign("replica")) as replica:
            until(lambda: None not in server.replicas.values() and bool(server.replicas))
            put(store, 0, 5)
            confirmed = server.confirmed
            until(lambda: replica.status.end == store.end_offset)
        write_epochs(fs, str(tmp_path / "copy"), Epochs((Epoch(1, store.end_offset, 9),)))
        with following(tmp_path / "copy", server.port, tls=authority.sign("again")) as replica:
            until(lambda: server.problem != "")
            assert "the master of epoch 1 has replaced it" in server.problem
            with pytest.raises(StaleMasterError, match="epoch 1 has replaced it; the append is in this log below"):
                put(store, 5, 1)
            until(lambda: replica.status.state in {ReplicaState.PAUSED, ReplicaState.FAILED})
        assert confirmed_offset(fs, store.path) == confirmed == server.confirmed
        with pytest.raises(StaleMasterError):
            ReplicationServer(store, quorum, SERVER)


def silent_connections(port: int, count: int, stack: contextlib.ExitStack) -> None:
    for _ in range(count):
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))


@pytest.mark.parametrize(
    "is_secret",
    [False, pytest.param(True, marks=pytest.mark.skipif(certificates.MISSING is not None, reason="no openssl"))],
)
def test_silent_connections_make_room_for_a_replica(
    tmp_path: Path, is_secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("SILENCE_S", "FIRST_REQUEST_S"):  # none of them ends because of its age
        monkeypatch.setattr(master, limit, 1e9)
    tls = certificates.Authority(tmp_path / "ca").sign("peer") if is_secret else None
    config = ServerConfig(port=0, connections_max=8, tls=tls)
    with (
        MessageStore.open(tmp_path / "first", PLAIN) as store,
        ReplicationServer(store, Quorum(), config) as server,
        contextlib.ExitStack() as stack,
    ):
        put(store, 0, 5)
        silent_connections(server.port, 20, stack)
        until(lambda: len(server.replicas) == 8)
        with following(tmp_path / "copy", server.port, tls=tls) as replica:
            until(lambda: replica.status.end == store.end_offset)
            silent_connections(server.port, 20, stack)
            put(store, 5, 5)
            until(lambda: replica.status.end == store.end_offset)
            assert replica.status.connections == 1


def test_an_address_has_so_many_places_and_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = ServerConfig(port=0, connections_per_address=3)
    with (
        MessageStore.open(tmp_path / "first", PLAIN) as store,
        ReplicationServer(store, Quorum(), config) as server,
        contextlib.ExitStack() as stack,
        caplog.at_level("INFO"),
    ):
        for _ in range(3):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            asked(peer, -1, 0)
        until(lambda: len(server.replicas) == 3)
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as peer:
                assert closed(peer)
        assert len(server.replicas) == 3
        lines = [line.getMessage() for line in caplog.records if "127.0.0.1" in line.getMessage()]
    assert len(lines) == 1
    assert "all 3 places of this address are taken" in lines[0]


class Scarce:
    """Function that fails for want of a descriptor so many times."""

    def __init__(self, function: Callable[..., object], failures: int) -> None:
        self.function, self.failures = function, failures

    def __call__(self, *arguments: object, **named: object) -> object:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.function(*arguments, **named)


@pytest.mark.parametrize("looks_at", ["log", "epochs"])
def test_a_look_that_fails_is_tried_again(tmp_path: Path, looks_at: str) -> None:
    with serving(tmp_path / "first") as (store, server):
        owner, name = (server._log, "again") if looks_at == "log" else (server._epochs, "look")
        failing = Scarce(getattr(owner, name), failures=1 << 30)
        setattr(owner, name, failing)
        with following(tmp_path / "copy", server.port) as replica:
            put(store, 0, 5)
            until(lambda: failing.failures < (1 << 30) - 3)
            assert (server.problem, replica.status.end) == ("", 0)
            failing.failures = 0
            until(lambda: replica.status.end == store.end_offset)
        assert server.problem == ""


def test_without_a_descriptor_connections_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_CHECK_S", 0.01)
    with serving(tmp_path / "first") as (store, serving_one):
        failing = Scarce(socket.socket.accept, failures=3)

        def accept(listener: socket.socket) -> object:
            return failing(listener)

        monkeypatch.setattr(socket.socket, "accept", accept)
        put(store, 0, 5)
        with following(tmp_path / "copy", serving_one.port) as replica:
            until(lambda: replica.status.end == store.end_offset)
            assert (failing.failures, replica.status.connections, serving_one.problem) == (0, 1, "")


# Places


def taken(places: Places, *connections: tuple[str, int]) -> None:
    for address, number in connections:
        places.add_connection(address, number)


def test_the_oldest_silent_connection_of_the_address_makes_room() -> None:
    places = Places(100, 3)
    assert places.victim_of("a") is None
    taken(places, ("a", 1), ("a", 2), ("a", 3), ("b", 4))
    places.note_request("a", 1)
    assert places.victim_of("a") == 2
    assert places.victim_of("b") is None
    places.remove_connection("a", 2)
    assert places.victim_of("a") is None
    taken(places, ("a", 2))
    assert places.victim_of("a") == 3


def test_if_all_places_are_taken_the_address_with_most_silent_connections_makes_room() -> None:
    places = Places(5, 3)
    taken(places, ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5))
    places.note_request("a", 1)
    places.note_request("a", 2)
    assert places.victim_of("c") == 4
    for address, number in (("b", 4), ("b", 5), ("a", 3)):
        places.note_request(address, number)
    with pytest.raises(ReplicationError, match="all 5 places are taken"):
        places.victim_of("c")
    places.remove_connection("b", 5)
    assert places.victim_of("c") is None


# Log lines


def test_many_subjects_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    lines = RareLines(logging.getLogger("segmentlog.test"))
    for number in range(3000):
        lines.write(logging.WARNING, f"address {number}", "refused")
    assert len(lines._written) <= 1024
    assert len(caplog.records) == 3000
