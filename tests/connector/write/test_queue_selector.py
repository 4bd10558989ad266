import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.options.write_table import Selector
from segmentlog.connector.write.queue_selector import QueueChooser, QueueRules
from segmentlog.query.selection import UnknownTopicError
from segmentlog.store import IllegalMessageError
from support.store_builder import java_hash


def chooser(
    selector: Selector = Selector.ROUND_ROBIN,
    *,
    start: int = 0,
    create: bool = True,
    system: bool = False,
    **counts: int,
) -> QueueChooser:
    rules = QueueRules(selector=selector, counts=counts, default_queues=8, create_topic=create, system_topics=system)
    return QueueChooser(rules, start)


def choose(
    chooser: QueueChooser,
    topics: list[str],
    queue_ids: list[int | None] | None = None,
    keys: list[str | None] | None = None,
    first: int = 0,
) -> list[int]:
    found = chooser.choose(
        pa.array(topics, pa.string()).dictionary_encode(),
        None if queue_ids is None else pa.array(queue_ids, pa.int32()),
        None if keys is None else pa.array(keys, pa.string()),
        np.arange(first, first + len(topics)),
    )
    assert found.dtype == np.int32
    return found.tolist()


def test_round_robin_continues_over_batches() -> None:
    one = chooser(start=6, t=8)
    assert choose(one, ["t"] * 5) == [6, 7, 0, 1, 2]
    assert choose(one, ["t"] * 3) == [3, 4, 5]


def test_each_topic_has_its_turn() -> None:
    one = chooser(start=1, a=2, b=3)
    assert choose(one, ["a", "b", "a", "b", "b", "a"]) == [1, 1, 0, 2, 0, 1]
    assert choose(one, ["b", "a"]) == [1, 0]
    assert choose(one, ["a"]) == [1]


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 39))
def test_batches_make_no_difference(topics: list[str], size: int) -> None:
    whole, cut = chooser(a=2, b=3), chooser(a=2, b=3)
    found = [queue for at in range(0, len(topics), size) for queue in choose(cut, topics[at : at + size])]
    assert found == choose(whole, topics)


def test_the_column_says() -> None:
    one = chooser(Selector.COLUMN, t=4)
    assert choose(one, ["t"] * 5, [3, None, 9, None, 0], keys=None) == [3, 0, 9, 1, 0]


def test_where_the_column_is_null_the_key_says() -> None:
    one = chooser(Selector.COLUMN, t=4)
    assert choose(one, ["t"] * 3, [3, None, None], keys=["x", "x", None]) == [3, java_hash("x") % 4, 0]


def test_keys_go_where_rocketmqs_clients_send_them() -> None:
    # SelectMessageQueueByHash: |hashCode| mod queues. "polygenelubricants" has the lowest hash that Java has.
    keys = ["order-17", "键", "", "polygenelubricants", "a𝄞b"]
    assert java_hash("polygenelubricants") == -(1 << 31)
    one = chooser(Selector.SHARDING_KEY, t=7)
    assert choose(one, ["t"] * 5, keys=keys) == [abs(java_hash(key)) % 7 for key in keys]
    assert choose(one, ["t"] * 2, keys=[None, None]) == [0, 1]


def test_columns_that_the_selector_does_not_use_are_ignored() -> None:
    assert choose(chooser(t=4), ["t"] * 2, [3, 3], ["x", "x"]) == [0, 1]
    assert choose(chooser(Selector.SHARDING_KEY, t=4), ["t"] * 2, [3, 3], ["x", "x"]) == [java_hash("x") % 4] * 2


def test_topics_that_are_not_there_are_made() -> None:
    one = chooser(t=2)
    assert choose(one, ["new"] * 10) == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert one.made == {"new": 8}


def test_or_not() -> None:
    one = chooser(create=False, t=2)
    choose(one, ["t"])
    with pytest.raises(UnknownTopicError, match="row 12 asks for topic `new`, which the store does not have"):
        choose(one, ["t", "t", "new"], first=10)


def test_queue_ids_that_cannot_be() -> None:
    with pytest.raises(IllegalMessageError, match="row 11 has queue id -1, below zero"):
        choose(chooser(Selector.COLUMN, t=2), ["t", "t"], [0, -1], first=10)
    with pytest.raises(IllegalMessageError, match="row 11 has queue id 2, and its topic has 2 queues"):
        choose(chooser(Selector.COLUMN, create=False, t=2), ["t", "t"], [1, 2], first=10)


def test_no_rows() -> None:
    assert choose(chooser(), []) == []


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%g", "%DLQ%g"])
def test_system_topics_are_written_to_if_asked_alone(topic: str) -> None:
    with pytest.raises(IllegalMessageError, match=f"row 12 is for the system topic `{topic}`.*allowSystemTopics"):
        choose(chooser(t=2), ["t", "t", topic, "t", topic], first=10)
    with pytest.raises(IllegalMessageError, match="system topic"):  # also where the store has it
        choose(chooser(**{topic: 1}), [topic])
    assert choose(chooser(system=True), [topic]) == [0]
