"""Pipeline of a batch commit: it prefetches one item, syncs the one before, and leaves no thread."""

import threading
from collections.abc import Iterator

import pytest

from segmentlog.store.write.commit_pipeline import CommitPipeline

WAIT_S = 30


def threads() -> set[str]:
    names = {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
    return names & {"segmentlog-prefetch", "segmentlog-sync"}


@pytest.mark.parametrize("is_threaded", [False, True])
def test_items_come_in_their_order(is_threaded: bool) -> None:
    with CommitPipeline(is_threaded=is_threaded) as ahead:
        assert list(ahead.prefetched(iter(range(1, 50)))) == [*range(1, 50)]
        assert list(ahead.prefetched(iter(()))) == []
    assert threads() == set()


def test_one_item_is_read_while_the_one_before_is_used() -> None:
    asked = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(asked):
            event.set()
            yield number + 1

    with CommitPipeline(is_threaded=True) as ahead:
        coming = ahead.prefetched(items())
        assert next(coming) == 1
        assert asked[1].wait(WAIT_S)
        assert not asked[2].is_set()
        assert list(coming) == [2, 3]


def test_without_threads_nothing_is_read_before_its_turn() -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for number in (1, 2):
            asked.append(number)
            yield number

    with CommitPipeline(is_threaded=False) as ahead:
        coming = ahead.prefetched(items())
        assert next(coming) == 1
        assert asked == [1]


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_error_of_the_iterator_comes_when_its_turn_does(is_threaded: bool) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("chunk 2 is damaged")

    with CommitPipeline(is_threaded=is_threaded) as ahead:
        coming = ahead.prefetched(items())
        assert next(coming) == 1
        with pytest.raises(ValueError, match="chunk 2 is damaged"):
            next(coming)
    assert threads() == set()


def test_one_sync_runs_at_a_time_and_others_are_left_out() -> None:
    began, go_on, second, third = (threading.Event() for _ in range(4))
    done: list[str] = []

    def slow() -> None:
        began.set()
        assert go_on.wait(WAIT_S)
        done.append("slow")

    with CommitPipeline(is_threaded=True) as ahead:
        ahead.sync(slow)
        assert began.wait(WAIT_S)
        ahead.sync(second.set)
        go_on.set()
        assert not second.wait(0.5), "it was queued behind the one that was running"
        ahead.sync(third.set)
        assert third.wait(WAIT_S)
    assert done == ["slow"]
    assert threads() == set()


def test_without_threads_nothing_is_synced_before_its_time() -> None:
    done: list[int] = []
    with CommitPipeline(is_threaded=False) as ahead:
        ahead.sync(lambda: done.append(1))
    assert done == []


def test_an_error_within_the_block_leaves_no_thread() -> None:
    def commit() -> None:
        with CommitPipeline(is_threaded=True) as ahead:
            ahead.sync(lambda: None)
            next(ahead.prefetched(iter([1, 2, 3])))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit()
    assert threads() == set()
