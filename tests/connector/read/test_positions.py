"""Positions resolved against a store: every kind, out of range, empty queues, and backwards."""

import logging
from bisect import bisect_left
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.errors import MissingOptionError, StartAfterEndError
from segmentlog.connector.options.positions import (
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Fallback,
    GroupPosition,
    Latest,
    Position,
    StartRules,
)
from segmentlog.connector.read.positions import check_all_read, check_order, resolve_start, resolve_stop
from segmentlog.store import Boundary, ConfigError, OffsetOutOfRangeError, QueueBounds, QueueKey

KEY = QueueKey("orders", 0)


BOUNDS = QueueBounds(KEY, 10, 20)


@dataclass
class FakeStore:
    """One queue of messages stored at times 1000, 1010, …, from offset 10 on."""

    path: str = "/data/store"
    broker_name: str = "broker-a"
    bounds: QueueBounds = BOUNDS
    groups: dict[str, dict[QueueKey, int]] = field(default_factory=dict)

    def offset_at(self, key: QueueKey, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        assert key == self.bounds.key
        times = [1000 + 10 * n for n in range(self.bounds.max_offset - self.bounds.min_offset)]
        at = bisect_left(times, time_ms)
        if boundary is Boundary.UPPER and at and (at == len(times) or times[at] != time_ms):
            at -= 1
        return self.bounds.min_offset + at

    def group_offsets(self, group: str) -> dict[QueueKey, int]:
        return self.groups.get(group, {})


def start(position: Position, store: FakeStore | None = None, **rules: object) -> int:
    store = store or FakeStore()
    return resolve_start(position, store.bounds, store, StartRules(**rules))  # type: ignore[arg-type]


def stop(position: Position, store: FakeStore | None = None, **rules: object) -> int:
    store = store or FakeStore()
    return resolve_stop(position, store.bounds, store, StartRules(**rules))  # type: ignore[arg-type]


def at(offset: int) -> AtOffsets:
    return AtOffsets({(None, KEY): offset})


def test_the_ends_of_a_queue() -> None:
    assert (start(Earliest()), start(Latest())) == (10, 20)
    assert (stop(Earliest()), stop(Latest())) == (10, 20)
    assert (start(at(-2)), start(at(-1)), stop(at(-1))) == (10, 20, 20)


@pytest.mark.parametrize("offset", [10, 15, 20])
def test_an_offset_that_is_there(offset: int) -> None:
    assert start(at(offset)) == stop(at(offset)) == offset


@pytest.mark.parametrize(
    ("offset", "why", "nearest"),
    [(4, "offsets 4 to 9 are gone", 10), (0, "offsets 0 to 9 are gone", 10), (21, "the queue never got so far", 20)],
)
def test_an_offset_out_of_range(offset: int, why: str, nearest: int, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(at(offset))
    text = str(caught.value)
    assert text.startswith(
        f"[SEGMENTLOG_OFFSET_OUT_OF_RANGE] `startingOffsets` asks for offset {offset} of orders/0, "
        f"which is out of range (min 10, max 20): {why}"
    )
    assert "(in /data/store). Ask for 10 to 20" in text
    assert "failOnDataLoss=false" in text
    with pytest.raises(OffsetOutOfRangeError, match="`endingOffsets` asks for"):
        stop(at(offset))

    with caplog.at_level(logging.WARNING):
        assert start(at(offset), fail_on_data_loss=False) == nearest
        assert stop(at(offset), fail_on_data_loss=False) == nearest
    assert f"offset {nearest} is taken instead" in caplog.text


def test_a_queue_that_the_json_leaves_out() -> None:
    elsewhere = AtOffsets({(None, QueueKey("orders", 1)): 5})
    with pytest.raises(MissingOptionError, match=r"`startingOffsets` leaves out orders/0.*startingOffsetsDefault"):
        start(elsewhere)
    assert start(elsewhere, unlisted=Fallback.EARLIEST) == 10
    assert start(elsewhere, unlisted=Fallback.LATEST) == 20
    assert stop(elsewhere) == 20


def test_a_brokers_own_number_goes_first() -> None:
    both = AtOffsets({(None, KEY): 12, ("broker-a", KEY): 13})
    assert start(both) == 13
    assert start(both, FakeStore(broker_name="broker-b")) == 12


def test_the_position_of_a_group() -> None:
    store = FakeStore(groups={"billing": {KEY: 14}, "old": {KEY: 3}})
    assert start(GroupPosition("billing"), store) == stop(GroupPosition("billing"), store) == 14
    with pytest.raises(OffsetOutOfRangeError, match="group `old` asks for offset 3"):
        start(GroupPosition("old"), store)
    assert start(GroupPosition("old"), store, fail_on_data_loss=False) == 10
    with pytest.raises(MissingOptionError, match="the consumer group `new` has no position for orders/0"):
        start(GroupPosition("new"), store)
    assert start(GroupPosition("new"), store, unlisted=Fallback.EARLIEST) == 10
    assert stop(GroupPosition("new"), store) == 10  # it has consumed nothing


@pytest.mark.parametrize(("ms", "offset"), [(0, 10), (1000, 10), (1001, 11), (1090, 19)])
def test_a_starting_time(ms: int, offset: int) -> None:
    assert start(AtTime(ms)) == offset
    assert start(AtTimes({(None, KEY): ms})) == offset


@pytest.mark.parametrize(("ms", "offset"), [(999, 10), (1000, 10), (1009, 10), (1010, 11), (2000, 19)])
def test_a_starting_time_with_the_upper_boundary(ms: int, offset: int) -> None:
    assert start(AtTime(ms), boundary=Boundary.UPPER) == offset


@pytest.mark.parametrize(("ms", "offset"), [(0, 10), (1000, 10), (1001, 11), (1090, 19), (1091, 20)])
def test_an_ending_time_is_exclusive(ms: int, offset: int) -> None:
    assert stop(AtTime(ms)) == offset
    assert stop(AtTimes({(None, KEY): ms})) == offset


def test_a_starting_time_after_the_last_message() -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(AtTime(1091))
    assert "orders/0 has no message stored at or after the asked start, 1091 ms since 1970 (in /data/store)" in str(
        caught.value
    )
    assert "startingOffsetsByTimestampStrategy" in str(caught.value)
    assert start(AtTime(1091), unmatched_time=Fallback.LATEST) == 20
    assert start(AtTime(1091), unmatched_time=Fallback.EARLIEST) == 10


def test_an_empty_queue_matches_any_time() -> None:
    empty = FakeStore(bounds=QueueBounds(KEY, 5, 5))
    assert start(AtTime(1091), empty) == 5
    assert stop(AtTime(1091), empty) == 5


def test_a_queue_without_a_time() -> None:
    elsewhere = AtTimes({(None, QueueKey("orders", 1)): 5})
    with pytest.raises(MissingOptionError, match="`startingOffsetsByTimestamp` leaves out orders/0"):
        start(elsewhere)
    assert start(elsewhere, unlisted=Fallback.LATEST) == 20
    assert stop(elsewhere) == 20


def test_backwards_is_an_error() -> None:
    check_order(15, 15, KEY, FakeStore())
    with pytest.raises(StartAfterEndError) as caught:
        check_order(16, 15, KEY, FakeStore())
    assert str(caught.value).startswith(
        "[SEGMENTLOG_RESOLVED_START_OFFSET_GREATER_THAN_END] orders/0 would be read from offset 16 to offset 15"
    )


@pytest.mark.parametrize(
    ("position", "named"),
    [
        (at(3), None),
        (Earliest(), None),
        (AtOffsets({("broker-a", KEY): 3}), None),
        (AtOffsets({(None, QueueKey("orders", 9)): 3}), "orders/9,"),
        (AtTimes({("broker-z", KEY): 3}), "orders/0 of broker `broker-z`,"),
    ],
)
def test_numbers_for_queues_that_are_not_read(position: Position, named: str | None) -> None:
    read = {("broker-a", KEY), ("broker-b", KEY)}
    if named is None:
        check_all_read(position, "startingOffsets", read)
        return
    with pytest.raises(ConfigError, match=f"option `startingOffsets` names {named} which this query does not read"):
        check_all_read(position, "startingOffsets", read)


@given(st.integers(0, 30), st.integers(0, 1200), st.booleans())
def test_what_is_resolved_lies_within_the_queue(offset: int, ms: int, upper: bool) -> None:
    rules = {"fail_on_data_loss": False, "unmatched_time": Fallback.LATEST}
    boundary = Boundary.UPPER if upper else Boundary.LOWER
    for position in (at(offset), AtTime(ms)):
        assert 10 <= start(position, boundary=boundary, **rules) <= 20
        assert 10 <= stop(position, **rules) <= 20
