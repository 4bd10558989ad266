import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.queue_keys import different_queues
from segmentlog.store.types import QueueKey

TOPICS = st.sampled_from(["A", "B", "%RETRY%g", "тема"])


@pytest.mark.parametrize("ids", [st.integers(0, 9), st.integers(-(2**31), 2**31 - 1)], ids=["counted", "sorted"])
def test_each_row_has_its_queue_and_each_queue_is_there_once(ids: st.SearchStrategy[int]) -> None:
    @given(st.lists(st.tuples(TOPICS, ids), max_size=60))
    def check(rows: list[tuple[str, int]]) -> None:
        topics = pa.array([topic for topic, _ in rows], pa.string()).dictionary_encode()
        keys, queue_of = different_queues(topics, np.array([queue for _, queue in rows], np.int64))
        assert [keys[number] for number in queue_of.tolist()] == [QueueKey(*row) for row in rows]
        assert len(keys) == len(set(rows))
        assert queue_of.dtype == np.int64

    check()


def test_a_slice_knows_only_its_own_queues() -> None:
    topics = pa.array(["A", "B", "C"]).dictionary_encode()[1:2]
    assert different_queues(topics, np.array([3]))[0] == [QueueKey("B", 3)]
