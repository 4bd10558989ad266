import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.format.broker_config import ClientQueue
from segmentlog.store.groups.allocation import allocate_averagely, allocate_by_circle, allocate_consistent_hash

STRATEGIES = [allocate_averagely, allocate_by_circle, allocate_consistent_hash]


def queues(count: int, broker: str = "broker-a") -> list[ClientQueue]:
    return [ClientQueue("Orders", broker, number) for number in range(count)]


def ids(got: list[ClientQueue]) -> list[int]:
    return [queue.queue_id for queue in got]


@pytest.mark.parametrize(
    ("count", "consumers", "expected"),
    [
        (8, "abc", [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (8, "ab", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (4, "abc", [[0, 1], [2], [3]]),
        (3, "abc", [[0], [1], [2]]),
        (2, "abc", [[0], [1], []]),
        (0, "a", [[]]),
    ],
)
def test_averagely_assigns_runs_of_consecutive_queues(count: int, consumers: str, expected: list[list[int]]) -> None:
    assert [ids(allocate_averagely(queues(count), consumers, each)) for each in consumers] == expected


@pytest.mark.parametrize(
    ("count", "consumers", "expected"),
    [(8, "abc", [[0, 3, 6], [1, 4, 7], [2, 5]]), (2, "abc", [[0], [1], []]), (0, "a", [[]])],
)
def test_by_circle_deals_them_out(count: int, consumers: str, expected: list[list[int]]) -> None:
    assert [ids(allocate_by_circle(queues(count), consumers, each)) for each in consumers] == expected


def test_a_hashed_queue_goes_to_the_next_point_on_the_ring() -> None:
    # RocketMQ 4.9.1 and 5.3.3 returned this for queues x/0 to x/3 and y/0 of topic T; `tests/interop` has more.
    given_queues = [ClientQueue("T", "x", number) for number in range(4)] + [ClientQueue("T", "y", 0)]
    got = {each: allocate_consistent_hash(given_queues, "abc", each) for each in "abc"}
    named = {each: [f"{queue.broker_name}{queue.queue_id}" for queue in mine] for each, mine in got.items()}
    assert named == {"a": ["x1", "x2"], "b": ["x0"], "c": ["x3", "y0"]}

    def point(text: str) -> int:
        return int(hashlib.md5(text.encode()).hexdigest()[:8], 16)

    ring = sorted((point(f"{each}-{number}"), each) for each in "abc" for number in range(10))
    asked = point("MessageQueue [topic=T, brokerName=x, queueId=0]")
    assert next((each for at, each in ring if at >= asked), ring[0][1]) == "b"


@pytest.mark.parametrize("allocate", STRATEGIES)
def test_a_stranger_gets_nothing(allocate: Callable[..., list[ClientQueue]]) -> None:
    assert allocate(queues(4), ["a", "b"], "c") == []


def test_names_are_sorted_as_java_does() -> None:
    # In UTF-16, which Java compares, U+1F600 begins with D83D and comes before U+FF5E; by code points it is later.
    assert ids(allocate_averagely(queues(2), ["～", "😀"], "😀")) == [0]
    brokers = [ClientQueue("T", "～", 0), ClientQueue("T", "😀", 1)]
    assert ids(allocate_averagely(brokers, ["a", "b"], "a")) == [1]


@given(
    st.sets(st.tuples(st.sampled_from(["T", "U"]), st.sampled_from("ab"), st.integers(0, 30)), max_size=40),
    st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=9),
)
def test_every_queue_has_one_reader_for_any_order_of_arguments(
    asked: set[tuple[str, str, int]], consumers: set[str]
) -> None:
    made = [ClientQueue(*queue) for queue in asked]
    for allocate in STRATEGIES:
        got = [queue for each in consumers for queue in allocate(made, consumers, each)]
        assert sorted(got) == sorted(made)
        turned = [queue for each in consumers for queue in allocate(made[::-1], sorted(consumers), each)]
        assert turned == got
