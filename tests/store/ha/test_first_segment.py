"""First segment of a master: bisection finds it, and a question is answered by bytes, heartbeats or silence."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import ReplicationError
from segmentlog.store.ha.first_segment import find_first, serves
from segmentlog.store.ha.link import Link


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1024, 1 << 30))
def test_the_first_served_segment_is_found_with_few_questions(first: int, more: int, size: int) -> None:
    last, asked = (first + more) * size, []

    def is_served(base: int) -> bool:
        asked.append(base)
        return base >= first * size

    assert find_first(is_served, last, size) == first * size
    assert len(asked) <= 11
    assert all(base % size == 0 and base <= last for base in asked)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (struct.pack(">qi", 4096, 5) + b"bytes", True),
        (struct.pack(">qi", 4096, 0), False),
        (b"", False),
        (struct.pack(">qi", 4096, 5), False),
    ],
)
def test_bytes_are_a_yes(answer: bytes, found: bool) -> None:
    master, ours = socket.socketpair()
    with master, Link(ours) as link:
        master.sendall(answer)
        assert serves(link, 4096, 4096, 0.05) is found
        assert master.recv(100) == struct.pack(">q", 4096)


def test_a_closed_connection_is_no_answer() -> None:
    master, ours = socket.socketpair()
    with Link(ours) as link:
        master.shutdown(socket.SHUT_WR)
        with master, pytest.raises(ReplicationError, match="closed the connection"):
            serves(link, 4096, 4096, 5)
