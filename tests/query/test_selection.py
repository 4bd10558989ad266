from pathlib import Path

import pytest

from segmentlog.query.selection import (
    Queues,
    TopicPattern,
    Topics,
    UnknownTopicError,
    group_progress,
    select,
    topics_of,
    unknown_group,
)
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError, QueueKey, UnknownQueueError


@pytest.mark.parametrize(
    ("wanted", "queues"),
    [
        (
            Topics(("payments", "orders")),
            [f"{topic}/{queue}" for topic in ("payments", "orders") for queue in range(4)],
        ),
        (Topics(("orders",), (3, 1)), ["orders/1", "orders/3"]),
        (TopicPattern("ord.*"), [f"orders/{queue}" for queue in range(4)]),
        (TopicPattern("ord"), []),
        (TopicPattern(".*etl"), []),
        (TopicPattern(".*etl", has_system=True), ["%RETRY%etl/0"]),
        (Queues((QueueKey("payments", 2), QueueKey("orders", 0))), ["payments/2", "orders/0"]),
    ],
)
def test_queues_of_a_selection(path: Path, wanted: Topics | TopicPattern | Queues, queues: list[str]) -> None:
    ((_, found),) = select([StoreSource(path=str(path)).open()], wanted)
    assert [str(bounds.key) for bounds in found] == queues
    assert all(wanted.wants(bounds.key.topic) and wanted.wants_queue(bounds.key) for bounds in found)
    assert not wanted.wants("other")


@pytest.mark.parametrize(
    ("wanted", "kind", "text"),
    [
        (
            Topics(("ordrs",)),
            UnknownTopicError,
            r"UNKNOWN_TOPIC\] TOPIC: there is no topic `ordrs` \(in .*mean `orders`\?",
        ),
        (Queues((QueueKey("order", 1),)), UnknownTopicError, "The topics are `%RETRY%etl`, `orders`, `payments`"),
        (
            Queues((QueueKey("orders", 4),)),
            UnknownQueueError,
            r"UNKNOWN_QUEUE\] there is no queue 4 of topic `orders` .*queues of this topic are 0, 1, 2, 3",
        ),
        (Topics(("orders", "payments"), (1, 7)), UnknownQueueError, "no queue 7 of topics `orders`, `payments`"),
    ],
)
def test_unknown_names(path: Path, wanted: Topics | TopicPattern | Queues, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        select([StoreSource(path=str(path)).open()], wanted, argument="TOPIC")


def test_positions_of_groups(path: Path) -> None:
    stores = [StoreSource(path=str(path)).open()]
    ((_, found),) = group_progress(stores, "etl")
    assert found.offsets[QueueKey("orders", 2)] == 20
    assert group_progress(stores, None) == group_progress(stores, "etl")
    with pytest.raises(ConfigError) as caught:
        group_progress(stores, "elt")
    assert f"consumer group `elt` has no position here (in {path})" in str(caught.value)
    assert "Did you mean `etl`? The groups with a position are `etl`" in str(caught.value)
    assert "No group has one: pass the store of the broker" in str(unknown_group("elt", [], path="/data"))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("^order", ["order", "orders"]),
        ("^order$", ["order"]),
        ("^.*s$", ["orders", "pays"]),
        ("^order|pay", ["order", "orders", "pays"]),
        ("^(?:o|p).*s$", ["orders", "pays"]),
        ("order", ["order"]),
    ],
)
def test_topics_by_name_and_by_pattern(name: str, found: list[str]) -> None:
    known = ["order", "orders", "pays", "%RETRY%orders", "SCHEDULE_TOPIC_XXXX"]
    assert topics_of([name], known, path="/s") == tuple(found)
