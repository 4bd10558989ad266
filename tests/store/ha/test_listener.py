"""Listener: without a descriptor it closes what connects, and without a spare one it lets connections wait."""

import errno
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from segmentlog.store.ha import listener as module
from segmentlog.store.ha.listener import Listener


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
        monkeypatch.setattr(module.socket, "socket", Scarce(socket.socket, 2))
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
