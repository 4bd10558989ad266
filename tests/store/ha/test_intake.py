"""Intake: bytes that were waited for are handled at once, and bytes of a stream are gathered for a limited time."""

from collections.abc import Callable

import pytest

from segmentlog.store.ha import intake
from segmentlog.store.ha.intake import BUFFER_BYTES, Intake
from segmentlog.store.ha.link import Link
from support.patched import patch_import


class Scripted(Link):
    """Link whose reads are scripted: bytes per read; and whether a wait finds bytes."""

    def __init__(self, *reads: bytes) -> None:
        self.reads = list(reads)
        self.waited: list[float] = []

    def receive(self, into: memoryview) -> int:
        data = self.reads.pop(0) if self.reads else b""
        taken = data[: len(into)]
        if len(taken) < len(data):
            self.reads.insert(0, data[len(taken) :])
        into[: len(taken)] = taken
        return len(taken)

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return bool(self.reads)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Let time pass by sleeping alone."""
    now = [0.0]
    patch_import(
        monkeypatch,
        intake,
        "time",
        monotonic=lambda: now[0],
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
    )
    return lambda: now[0]


def test_bytes_that_were_waited_for_are_returned_at_once(clock: Callable[[], float]) -> None:
    link = Scripted(b"", b"new", b"more")
    data = Intake(link).read(100, 0.2)
    assert data is not None
    assert bytes(data) == b"new"
    assert link.waited == [0.2]
    assert clock() == 0.0


def test_nothing_came(clock: Callable[[], float]) -> None:
    assert Intake(Scripted()).read(100, 0.2) is None
    assert Intake(Scripted(b"")).read(100, 0.2) is None
    assert clock() == 0.0


def test_a_stream_is_gathered_until_it_stalls(clock: Callable[[], float]) -> None:
    link = Scripted(b"a", b"b", b"c", b"", b"d")
    data = Intake(link).read(100, 0.2)
    assert data is not None
    assert bytes(data) == b"abc"
    assert clock() == pytest.approx(0.003)
    assert not link.waited


def test_a_stream_is_gathered_for_a_while_and_to_a_size(clock: Callable[[], float]) -> None:
    whole = [b"x" * 10] * 1000
    data = Intake(Scripted(*whole)).read(1000, 0.2)
    assert data is not None
    assert len(data) == 110
    assert clock() == pytest.approx(0.01)
    data = Intake(Scripted(*whole)).read(55, 0.2)
    assert data is not None
    assert len(data) == 55
    assert clock() == pytest.approx(0.015)
    big = Intake(Scripted(b"y" * (BUFFER_BYTES + 1))).read(BUFFER_BYTES, 0.2)
    assert big is not None
    assert len(big) == BUFFER_BYTES
