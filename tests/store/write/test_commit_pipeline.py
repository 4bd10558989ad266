"""Pipeline of a batch commit: it prefetches one item, syncs the one before, and leaves no thread."""

import os
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from segmentlog.store.write.commit_pipeline import CommitPipeline
from support.interrupting import own_threads

WAIT_S = 30


def threads() -> set[str]:
    names = {thread.name.rpartition("_")[0] for thread in own_threads()}
    return names & {"segmentlog-prefetch", "segmentlog-aside", "segmentlog-put", "segmentlog-sync"}


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


@pytest.mark.parametrize("is_threaded", [False, True])
def test_results_come_in_the_order_of_the_items(is_threaded: bool) -> None:
    with CommitPipeline(is_threaded=is_threaded) as pipeline:
        assert list(pipeline.written(range(50), lambda item: -item)) == [(item, -item) for item in range(50)]
        assert list(pipeline.written((), str)) == []
    assert threads() == set()


def test_items_are_written_at_the_same_time_and_few_of_them_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    both = threading.Barrier(2)
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    with CommitPipeline(is_threaded=True) as pipeline:
        for item, _ in pipeline.written(items(), lambda _: both.wait(WAIT_S)):
            assert len(taken) <= item + 3


def test_without_threads_an_item_is_written_before_the_next_is_taken() -> None:
    taken: list[int] = []
    with CommitPipeline(is_threaded=False) as pipeline:
        written = pipeline.written(iter([1, 2]), taken.append)
        assert next(written) == (1, None)
        assert taken == [1]


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_error_of_an_item_comes_when_its_turn_does(is_threaded: bool) -> None:
    def write(item: int) -> int:
        if item == 2:
            raise OSError("piece 2")
        return item

    found: list[int] = []

    def commit() -> None:
        with CommitPipeline(is_threaded=is_threaded) as pipeline:
            for item, _ in pipeline.written(iter(range(50)), write):
                found.append(item)

    with pytest.raises(OSError, match="piece 2"):
        commit()
    assert found == [0, 1]
    assert threads() == set()


def test_an_interrupt_waits_for_items_that_are_written() -> None:
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow(_: int) -> None:
        began.set()
        assert go_on.wait(WAIT_S)
        done.set()

    def items() -> Iterator[int]:
        yield 1
        assert began.wait(WAIT_S)
        threading.Timer(0.2, go_on.set).start()
        raise KeyboardInterrupt

    def commit() -> None:
        with CommitPipeline(is_threaded=True) as pipeline:
            list(pipeline.written(items(), slow))

    with pytest.raises(KeyboardInterrupt):
        commit()
    assert done.is_set()
    assert threads() == set()


def test_calls_aside_do_not_wait_for_each_other_until_many_are_behind() -> None:
    go_on, last = threading.Event(), threading.Event()
    done: list[int] = []

    def slow(number: int) -> None:
        assert go_on.wait(WAIT_S)
        done.append(number)

    def submit() -> None:
        for number in range(3):
            pipeline.run_aside(partial(slow, number))
        last.set()

    with CommitPipeline(is_threaded=True) as pipeline:
        caller = threading.Thread(target=submit)
        caller.start()
        assert not last.wait(0.3), "three calls are behind"
        go_on.set()
        assert last.wait(WAIT_S)
        caller.join()
        for number in range(3, 12):
            pipeline.run_aside(partial(slow, number))
    assert done == list(range(len(done)))
    assert len(done) >= 10
    assert threads() == set()


def test_calls_aside_that_have_not_begun_are_dropped_at_the_end() -> None:
    began, go_on, dropped = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert go_on.wait(WAIT_S)

    with CommitPipeline(is_threaded=True) as pipeline:
        pipeline.run_aside(slow)
        pipeline.run_aside(dropped.set)
        assert began.wait(WAIT_S)
        threading.Timer(0.3, go_on.set).start()
    assert not dropped.is_set()
    assert threads() == set()


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_error_of_a_call_aside_is_raised_by_a_later_one(is_threaded: bool) -> None:
    def fail() -> None:
        raise OSError("release")

    with CommitPipeline(is_threaded=is_threaded) as pipeline, pytest.raises(OSError, match="release"):  # noqa: PT012
        for _ in range(9):
            pipeline.run_aside(fail)
    assert threads() == set()
