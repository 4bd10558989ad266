from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.queues.keys import QueueNumbers, Queues, different_queues
from segmentlog.store.types import QueueKey

TOPICS = st.sampled_from(["A", "B", "%RETRY%g", "тема"])


@pytest.mark.parametrize("ids", [st.integers(0, 9), st.integers(-(2**31), 2**31 - 1)], ids=["counted", "sorted"])
def test_each_row_has_its_queue_and_each_queue_is_there_once(ids: st.SearchStrategy[int]) -> None:
    @given(st.lists(st.tuples(TOPICS, ids), max_size=60))
    def check(rows: list[tuple[str, int]]) -> None:
        topics = pa.array([topic for topic, _ in rows], pa.string()).dictionary_encode()
        queues, queue_of = different_queues(topics, np.array([queue for _, queue in rows], np.int64))
        keys = queues.as_keys()
        assert [keys[number] for number in queue_of.tolist()] == [QueueKey(*row) for row in rows]
        assert len(keys) == len(set(rows))
        assert queue_of.dtype == np.int64

    check()


IDS = st.integers(0, 40) | st.sampled_from([65_535, 65_536, 2**31 - 1, -1])


@given(st.lists(st.lists(st.tuples(TOPICS, IDS), max_size=60), max_size=6))
def test_a_queue_has_one_number_however_it_is_asked_for(batches: list[list[tuple[str, int]]]) -> None:
    numbers = QueueNumbers()
    given: dict[QueueKey, int] = {}
    for number, rows in enumerate(batches):
        topics = pa.array([topic for topic, _ in rows], pa.string()).dictionary_encode()
        queues, _ = different_queues(topics, np.array([queue for _, queue in rows], np.int64))
        keys = queues.as_keys()
        came = [numbers.of_one(key) for key in keys] if number % 2 else numbers.of(queues).tolist()
        for key, each in zip(keys, came, strict=True):
            assert given.setdefault(key, each) == each
            assert numbers.key(each) == key
    assert sorted(given.values()) == list(range(len(numbers)))


def test_threads_that_ask_for_the_same_queues_get_the_same_numbers() -> None:
    numbers = QueueNumbers()
    queues = Queues(["A", "B"], np.repeat([0, 1], 500), np.tile(np.arange(500), 2))
    with ThreadPoolExecutor(8) as pool:
        ways = [lambda: numbers.of(queues).tolist(), lambda: [numbers.of_one(key) for key in queues.as_keys()]] * 8
        came = list(pool.map(lambda way: way(), ways))
    assert all(each == came[0] for each in came)
    assert sorted(came[0]) == list(range(1000)) == list(range(len(numbers)))
