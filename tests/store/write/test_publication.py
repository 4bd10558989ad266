"""Publication of a batch: order of mark and dispatch, and a batch that a full disk keeps hidden."""

import logging
import threading

import pytest

from segmentlog.store import BatchId, NoSpaceError
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.write.failure import Failure
from segmentlog.store.write.publication import Publication


class Parts:
    """Parts of a store that note their calls; `full` steps fail for want of space."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.full: set[str] = set()
        self.turn = threading.RLock()
        self.end = 900
        self.mark = BatchMark(4, 0, 100)

    def _take(self, name: str, call: object) -> None:
        if name in self.full:
            raise NoSpaceError("no space is left", path="/s")
        self.calls.append(call)

    def write(self, mark: BatchMark) -> None:
        self._take("mark", mark)
        self.mark = mark

    def wait(self, offset: int) -> None:
        self._take("flush", ("flush", offset))

    def dispatch(self) -> None:
        self._take("dispatch", "dispatch")


def made() -> tuple[Publication, Parts]:
    parts = Parts()
    publication = Publication(
        "/s", marker=parts, put_path=parts, flusher=parts, failure=Failure("/s"), make_visible=parts.dispatch
    )
    return publication, parts


def test_a_batch_is_hidden_and_then_dispatched_before_it_is_published() -> None:
    publication, parts = made()
    assert publication.sequence == 4
    publication.begin(5, 100)
    assert parts.calls == [BatchMark(5, 100, 100, in_flight=True, before=(0,))]
    publication.publish(BatchId("q", 1), 700)
    assert parts.calls[1:] == ["dispatch", BatchMark(5, 100, 700, before=(0,))]
    assert publication.sequence == 5


def test_nothing_is_hidden_if_the_disk_is_full() -> None:
    publication, parts = made()
    parts.full = {"mark"}
    with pytest.raises(NoSpaceError):
        publication.begin(5, 100)
    assert publication.sequence == 4


@pytest.mark.parametrize("step", ["dispatch", "mark"])
def test_a_batch_that_a_full_disk_hides_is_published_later(step: str, caplog: pytest.LogCaptureFixture) -> None:
    publication, parts = made()
    publication.begin(5, 100)
    parts.full = {step}
    with caplog.at_level(logging.ERROR):
        publication.publish(BatchId("q", 1), 700)
    assert "batch 1 of q is committed, but readers do not see it yet" in caplog.text
    with pytest.raises(NoSpaceError):
        publication.publish_waiting()
    parts.full, parts.calls = set(), []
    publication.publish_waiting()
    # Records after the batch are flushed first: the mark covers them.
    assert parts.calls == [("flush", 900), "dispatch", BatchMark(5, 100, 900, before=(0,))]
    publication.publish_waiting()
    publication.publish_before_next()
    assert len(parts.calls) == 3


def test_a_waiting_batch_is_left_alone_while_another_thread_puts() -> None:
    publication, parts = made()
    publication.begin(5, 100)
    parts.full = {"mark"}
    publication.publish(BatchId("q", 1), 700)
    parts.full, parts.calls = set(), []
    held, release = threading.Event(), threading.Event()

    def put() -> None:
        with parts.turn:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=put)
    thread.start()
    assert held.wait(30)
    publication.publish_waiting()
    assert parts.calls == []
    release.set()
    thread.join(30)
    publication.publish_waiting()
    assert len(parts.calls) == 3
