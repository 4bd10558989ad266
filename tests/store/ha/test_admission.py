"""Admission: a server outlives a lack of descriptors, silent connections make room, and no peer fills the log."""

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from segmentlog.store import ReplicationError
from segmentlog.store.ha import admission
from segmentlog.store.ha.admission import LINE_EVERY_S, Listener, Places, RareLines

# Listening socket


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1", 0)
    yield made
    made.close()


class Scarce:
    """Function that fails for want of a descriptor so many times."""

    def __init__(self, function: Callable[..., object], failures: int) -> None:
        self.function, self.failures = function, failures

    def __call__(self, *arguments: object, **named: object) -> object:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.function(*arguments, **named)


def connected(listener: Listener) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", listener.port))
    peer.settimeout(60)
    return peer


def test_a_connection_is_returned_with_its_address(listener: Listener) -> None:
    assert listener.accept() is None
    with connected(listener) as peer:
        accepted = listener.accept()
        assert accepted is not None
        with accepted.connection:
            assert (accepted.host, accepted.port) == peer.getsockname()
    assert (listener.turned_away, listener.is_exhausted) == (0, False)


def test_without_a_descriptor_connections_are_closed(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    spare = listener._spare
    monkeypatch.setattr(listener, "_socket", Accepting(listener._socket, failures=1))
    with connected(listener) as peer:
        assert listener.accept() is None
        assert peer.recv(1) == b""
    assert (listener.turned_away, listener.is_exhausted) == (1, False)
    assert spare is not None
    assert spare.fileno() == -1, "the descriptor was given up, and another one taken"


def test_without_a_spare_descriptor_connections_wait(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_socket", Accepting(listener._socket, failures=2))
    with connected(listener):
        monkeypatch.setattr(admission.socket, "socket", Scarce(socket.socket, 2))
        assert listener.accept() is None
        assert listener.is_exhausted
        assert not listener.recover()
        assert listener.recover()
        assert not listener.is_exhausted
        accepted = listener.accept()
        assert accepted is not None
        accepted.connection.close()


class Accepting:
    """Listening socket whose `accept` fails so many times."""

    def __init__(self, raw: socket.socket, failures: int) -> None:
        self.accept, self.close = Scarce(raw.accept, failures), raw.close


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


def test_an_address_whose_connections_all_have_requests_is_refused() -> None:
    places = Places(100, 2)
    taken(places, ("a", 1), ("a", 2))
    for number in (1, 2):
        places.note_request("a", number)
    with pytest.raises(ReplicationError, match="all 2 places of this address are taken"):
        places.victim_of("a")
    assert places.victim_of("b") is None


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


def test_a_subject_has_one_line_per_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    monkeypatch.setattr(admission.time, "monotonic", lambda: now)
    lines = RareLines(logging.getLogger("segmentlog.test"))
    for now in (0.0, 1.0, LINE_EVERY_S - 1):  # noqa: B007 - the clock of the lines
        lines.write(logging.WARNING, "a", "refused")
        lines.write(logging.WARNING, "b", "gone")
    now = LINE_EVERY_S
    lines.write(logging.WARNING, "a", "refused again")
    assert [line.getMessage() for line in caplog.records] == ["refused", "gone", "refused again (2 more before)"]


def test_many_subjects_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    lines = RareLines(logging.getLogger("segmentlog.test"))
    for number in range(3000):
        lines.write(logging.WARNING, f"address {number}", "refused")
    assert len(lines._written) <= 1024
    assert len(caplog.records) == 3000
