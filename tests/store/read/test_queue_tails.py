"""Tails of queues: which changes end a wait, how often each is reported, and the pauses between two comparisons."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.store import QueueKey
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.message import Bytes
from segmentlog.store.read.queue_tails import PAUSE_MAX_S, PAUSE_MIN_S, Piece, QueueTails

KEY, OTHER = QueueKey("T", 0), QueueKey("T", 1)
LONG_S = 1000.0
ENTRY = bytes(range(1, 21))


class Tails:
    """Tails of a file, a clock that pauses move on, and what happens in the first pause."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "00000000000000000000")
        Path(self.path).write_bytes(bytes(1 << 18))
        self.now = 0.0
        self.pauses: list[float] = []
        self.maps = 0
        self.event: Callable[[], object] = bool
        outer = self

        class Counting(LocalFileSystem):
            def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
                outer.maps += 1
                return super().map(path, start, stop)

        self.tails = QueueTails(Counting(), lambda: self.now)

    def at(self, position: int, length: int = 20, still: bytes | None = bytes(20)) -> Piece:
        return Piece(self.path, position, length, still, begins_with_last=False)

    def write(self, position: int, data: bytes = ENTRY) -> None:
        with open(self.path, "rb+", buffering=0) as file:
            os.pwrite(file.fileno(), data, position)

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        event, self.event = self.event, bool
        event()
        return False

    def wait(self, limit_s: float = LONG_S) -> float:
        """Wait; return how long that took."""
        began, self.pauses = self.now, []
        assert not self.tails.wait(limit_s, self._pause)
        return self.now - began


@pytest.fixture
def tails(tmp_path: Path) -> Tails:
    return Tails(tmp_path)


def mapped_store(tails: Tails) -> None:
    with open(tails.path, "rb+") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[20:40] = ENTRY


@pytest.mark.parametrize("write", [lambda tails: tails.write(20), mapped_store], ids=["pwrite", "map"])
def test_an_entry_ends_the_wait_at_once_however_it_is_written(tails: Tails, write: Callable[[Tails], object]) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    tails.event = lambda: write(tails)
    assert tails.wait() == PAUSE_MIN_S


@pytest.mark.parametrize("index", range(20))
def test_a_change_of_any_byte_counts(tails: Tails, index: int) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    tails.event = lambda: tails.write(20 + index, b"\1")
    assert tails.wait() == PAUSE_MIN_S


def test_what_was_there_before_the_wait_ends_it_without_a_pause(tails: Tails) -> None:
    tails.write(20)
    tails.tails.place({KEY: [tails.at(20)]})
    assert tails.wait() == 0
    assert not tails.pauses


def test_a_change_is_reported_once_and_the_next_one_again(tails: Tails) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    tails.write(20, b"\1")
    assert tails.wait() == 0
    tails.tails.place({KEY: [tails.at(20)]})  # a look that found nothing: the entry is hidden, or half written
    assert tails.wait(2) == pytest.approx(2)
    tails.write(20)
    assert tails.wait() == 0


def test_a_queue_that_moved_is_compared_at_its_new_place(tails: Tails) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    tails.write(20)
    assert tails.wait() == 0
    tails.tails.place({KEY: [tails.at(20, 40, ENTRY + bytes(20))]})
    assert tails.wait(1) == pytest.approx(1)
    tails.write(40)
    assert tails.wait() == 0


def test_places_in_one_window_share_a_map(tails: Tails) -> None:
    for position in range(0, 1 << 17, 20):
        tails.tails.place({KEY: [tails.at(position)]})
    assert tails.maps == 2 + (1 << 17) // (1 << 16) - 1
    tails.write(position)
    assert tails.wait() == 0


def test_a_queue_has_two_tails_at_the_end_of_a_file_and_none_when_it_is_gone(tails: Tails) -> None:
    last, following = tails.at(20, still=ENTRY), tails.at(1 << 16)
    tails.write(20)
    tails.tails.place({KEY: [last, following], OTHER: [tails.at(60)]})
    tails.write(1 << 16)
    assert tails.wait() == 0
    tails.tails.place({KEY: ()})
    tails.write(20, bytes(20))
    assert tails.wait(1) == pytest.approx(1)
    tails.write(60)
    assert tails.wait() == 0


@pytest.mark.parametrize("lacks", ["no file yet", "deleted", "shorter"])
def test_a_file_that_is_not_there_is_left_to_the_next_look(tails: Tails, lacks: str) -> None:
    piece = tails.at(20, still=None if lacks == "no file yet" else bytes(20))
    if lacks == "deleted":
        os.unlink(tails.path)
    if lacks == "shorter":
        os.truncate(tails.path, 30)
    tails.tails.place({KEY: [piece]})
    assert tails.wait(1) == pytest.approx(1)


def test_pauses_grow_while_nothing_comes_and_are_short_again_after_a_change(tails: Tails) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    tails.wait(0.05)
    assert set(tails.pauses[:-1]) == {PAUSE_MIN_S}
    tails.wait(10)
    assert tails.pauses[:-1] == sorted(tails.pauses[:-1])
    assert tails.pauses[-2] == PAUSE_MAX_S
    tails.write(20)
    assert tails.wait() == 0
    tails.tails.place({KEY: [tails.at(40)]})
    tails.wait(0.05)
    assert set(tails.pauses[:-1]) == {PAUSE_MIN_S}


def test_the_limit_is_kept(tails: Tails) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    tails.wait(10)
    assert tails.wait(0.0005) == pytest.approx(0.0005)
    assert tails.wait(0) == 0


def test_slow_comparisons_make_pauses_longer(tails: Tails) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    compared = tails.tails._changed

    def slowly() -> bool:
        tails.now += 0.001
        return compared()

    tails.tails._changed = slowly  # type: ignore[method-assign]
    tails.wait(10)
    assert min(tails.pauses[:-1]) >= 0.1


def test_one_comparison_that_is_interrupted_makes_no_pause_longer(tails: Tails) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    compared, comparisons = tails.tails._changed, 0

    def interrupted() -> bool:
        nonlocal comparisons
        comparisons += 1
        tails.now += 0.001 if comparisons == 10 else 0
        return compared()

    tails.tails._changed = interrupted  # type: ignore[method-assign]
    tails.wait(0.05)
    assert comparisons > 50
    assert set(tails.pauses[:-1]) == {PAUSE_MIN_S}


def test_a_pause_ends_the_wait(tails: Tails) -> None:
    tails.tails.place({KEY: [tails.at(20)]})
    assert tails.tails.wait(LONG_S, lambda _: True)
