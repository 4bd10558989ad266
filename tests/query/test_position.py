import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from segmentlog.api.arguments import parsed
from segmentlog.command.selection import parse_start
from segmentlog.connector.options.read_table import parse_offsets
from segmentlog.query.position import (
    At,
    AtTime,
    ByQueue,
    Earliest,
    Fallback,
    Last,
    Latest,
    OfGroup,
    Position,
    Resolver,
    Rules,
    Words,
    check_order,
    check_tables,
    settled,
)
from segmentlog.query.times import Ago, Clock, Instant, StartAfterEndError
from segmentlog.store import (
    Boundary,
    ConfigError,
    MissingExtraError,
    OffsetOutOfRangeError,
    OnLoss,
    QueueBounds,
    QueueKey,
    StoreLocation,
    UnknownQueueError,
)

KEY = QueueKey("orders", 0)
OTHER = QueueKey("orders", 1)
BOUNDS = QueueBounds(KEY, 10, 20)
NOW_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z
CLOCK = Clock(now_ms=NOW_MS)
NOON = AtTime(Instant(NOW_MS))
DOORS: dict[str, Callable[[str], Position]] = {
    "spark": lambda text: settled(parse_offsets("startingOffsets", text), CLOCK),
    "python": lambda text: parsed("start", text, Latest(), ["orders"], CLOCK),
    "command": lambda text: settled(parse_start(text), CLOCK),
}
ALL = ("spark", "python", "command")


@pytest.mark.parametrize(
    ("text", "position", "doors"),
    [
        ('{"orders": {"0": -2, "1": -1}}', ByQueue({(None, KEY): Earliest(), (None, OTHER): Latest()}), ALL[:1]),
        ("earliest", Earliest(), ALL),
        (" LATEST ", Latest(), ALL),
        ("last:10", Last(10), ALL),
        ("-10", Last(10), ALL[1:]),
        ("12", At(12), ALL[2:]),
        ("group:etl", OfGroup("etl"), ALL),
        (" Group:etl", OfGroup("etl"), ALL),
        ("beginning", Earliest(), ALL[2:]),
        ("end", Latest(), ALL[2:]),
        ("2026-01-31T12:00:00Z", NOON, ALL[1:]),
        ("2026-01-31T13:00:00+01:00", NOON, ALL[1:]),
        ("2026-01-31T11:59:59.9991Z", NOON, ALL[1:]),
        ("@1769860800000", NOON, ALL[1:]),
        ("s@1769860800000", NOON, ALL[2:]),
        ("now", NOON, ALL[1:]),
        ("-1h", AtTime(Instant(NOW_MS - 3_600_000)), ALL[1:]),
        ('{"orders": {"0": 23}}', ByQueue({(None, KEY): At(23)}), ALL),
        ('{"orders": {"0": "last:5", "1": "latest"}}', ByQueue({(None, KEY): Last(5), (None, OTHER): Latest()}), ALL),
        ('{"orders": {"0": "now"}}', ByQueue({(None, KEY): NOON}), ALL[1:]),
        ('{"broker-a": {"orders": {"0": 3}}}', ByQueue({("broker-a", KEY): At(3)}), ALL),
        ('{"orders": {}}', ByQueue({}), ALL),
    ],
)
@pytest.mark.parametrize("door", ALL)
def test_texts(door: str, text: str, position: Position, doors: tuple[str, ...]) -> None:
    if door in doors:
        assert DOORS[door](text) == position
        return
    with pytest.raises(ConfigError, match="is not a position"):
        DOORS[door](text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "--1", "1.5", "noon", "soon", "group:", "group:etl\n", "last:", "last:-1", "last:x", "@", "@x"),
        *("e@1", "\u0661", "+1", "{}", "[]", "{", '{"orders": 5}', '{"orders": {"0": "5x"}}', '{"orders": {"0": 1.5}}'),
        *(f'{{"orders": {{"0": {each}}}}}' for each in ("true", "null", "-3", "9223372036854775808", '"group:etl"')),
        *(f'{{"orders": {{"{each}": 1}}}}' for each in ("x", "-1", "2147483648", "\u0661", "")),
        '{"orders": {"0": 1}, "b": {"c": {"0": 1}, "d": 1}}',
        '{"orders": {"0": 1, "0": 2}}',
    ],
)
@pytest.mark.parametrize("door", ALL)
def test_invalid_texts_of_a_position_are_refused(door: str, text: str) -> None:
    with pytest.raises(ConfigError, match="is not a position") as caught:
        DOORS[door](text)
    assert caught.value.fix


def test_an_error_names_the_option_and_the_queue() -> None:
    for raw, found in (("now", "option `startingOffsets`: `now`"), ('{"orders": {"0": -3}}', ", orders/0: `-3`")):
        with pytest.raises(ConfigError) as caught:
            DOORS["spark"](raw)
        assert f"{found} is not a position" in str(caught.value)
    with pytest.raises(ConfigError, match=r"start: `1769860800000` is not.*@1769860800000 is 2026-01-31T12:00:00Z"):
        DOORS["python"]("1769860800000")


def test_times_are_settled_by_the_clock() -> None:
    assert settled(ByQueue({(None, KEY): AtTime(Ago(1))}), CLOCK) == ByQueue({(None, KEY): AtTime(Instant(NOW_MS - 1))})
    with pytest.raises(ConfigError, match="has no time zone"):
        DOORS["command"]("2026-01-31T12:00:00")


@dataclass
class FakeStore:
    """One queue of messages stored at times 1000, 1010, …, from offset 10 on."""

    path: str = "/data/store"
    location: StoreLocation = field(default_factory=lambda: StoreLocation.of("/data/store"))
    broker_name: str = "broker-a"
    bounds: QueueBounds = BOUNDS

    def offset_at(self, key: QueueKey, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        assert key == self.bounds.key
        times = [1000 + 10 * n for n in range(self.bounds.max_offset - self.bounds.min_offset)]
        at = bisect_left(times, time_ms)
        if boundary is Boundary.UPPER and at and (at == len(times) or times[at] != time_ms):
            at -= 1
        return self.bounds.min_offset + at

    times_fall = False

    def end_at(self, key: QueueKey, time_ms: int) -> int:
        return self.offset_at(key, time_ms)


GROUPS = {"billing": {KEY: 14}, "old": {KEY: 3}, "fast": {KEY: 25}}
WORDS = Words(unlisted="set startingOffsetsDefault", unmatched="set the strategy", unlisted_error=MissingExtraError)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.groups.group_offsets", lambda _, group, fs: GROUPS.get(group, {}))


def start(position: Position, store: FakeStore | None = None, **rules: object) -> int:
    store = store or FakeStore()
    return Resolver(store, Rules(**rules), WORDS).start(position, store.bounds)  # type: ignore[arg-type]


def end(position: Position, store: FakeStore | None = None, **rules: object) -> int:
    store = store or FakeStore()
    return Resolver(store, Rules(**rules), WORDS).end(position, store.bounds)  # type: ignore[arg-type]


def at(ms: int) -> AtTime:
    return AtTime(Instant(ms))


def listed(place: At | AtTime, key: QueueKey = KEY, broker: str | None = None) -> ByQueue:
    return ByQueue({(broker, key): place})


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (Earliest(), 10),
        (Latest(), 20),
        (Last(3), 17),
        (Last(0), 20),
        (Last(99), 10),
        *((At(offset), offset) for offset in (10, 15, 20)),
        (listed(At(15)), 15),
        (OfGroup("billing"), 14),
        *((at(ms), offset) for ms, offset in ((0, 10), (1000, 10), (1001, 11), (1090, 19))),
        (listed(at(1001)), 11),
    ],
)
def test_the_same_offset_as_start_and_as_end(position: Position, offset: int) -> None:
    assert start(position) == end(position) == offset


@pytest.mark.parametrize(
    ("offset", "why", "nearest"),
    [(4, "offsets 4 to 9 are gone", 10), (0, "offsets 0 to 9 are gone", 10), (21, "the queue never got so far", 20)],
)
@pytest.mark.parametrize("form", [At, lambda offset: listed(At(offset))])
def test_an_offset_out_of_range(
    form: Callable[[int], Position], offset: int, why: str, nearest: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(form(offset))
    text = str(caught.value)
    assert text.startswith(
        f"[SEGMENTLOG_OFFSET_OUT_OF_RANGE] start asks for offset {offset} of orders/0, "
        f"which is out of range (min 10, max 20): {why}"
    )
    assert "(in /data/store). Ask for 10 to 20, for earliest or latest" in text
    assert "OnLoss.SKIP" in text
    with pytest.raises(OffsetOutOfRangeError, match="end asks for"):
        end(form(offset))
    with caplog.at_level(logging.WARNING):
        assert start(form(offset), on_loss=OnLoss.SKIP) == end(form(offset), on_loss=OnLoss.SKIP) == nearest
    assert f"offset {nearest} is taken instead" in caplog.text
    caplog.clear()
    if offset > 20:
        assert start(form(offset), is_lenient=True) == 20
        assert not caplog.text


@pytest.mark.parametrize(
    ("position", "nothing", "ends"),
    [
        (listed(At(5), OTHER), "start leaves out orders/0", 20),
        (listed(at(5), OTHER), "start leaves out orders/0", 20),
        (OfGroup("new"), "the consumer group `new` has no position for orders/0", 10),  # it has consumed nothing
    ],
)
def test_a_queue_that_the_position_leaves_out(position: Position, nothing: str, ends: int) -> None:
    with pytest.raises(MissingExtraError, match=f"{nothing}.*startingOffsetsDefault"):
        start(position)
    assert start(position, unlisted=Fallback.EARLIEST) == 10
    assert start(position, unlisted=Fallback.LATEST) == 20
    assert end(position) == ends


def test_a_brokers_own_place_goes_first() -> None:
    both = ByQueue({(None, KEY): At(12), ("broker-a", KEY): At(13)})
    assert start(both) == 13
    assert start(both, FakeStore(broker_name="broker-b")) == 12


def test_a_group_outside_the_queue() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="group `old` asks for offset 3"):
        start(OfGroup("old"))
    with pytest.raises(OffsetOutOfRangeError, match="group `fast` asks for offset 25"):
        end(OfGroup("fast"))
    assert start(OfGroup("old"), on_loss=OnLoss.SKIP) == 10
    assert start(OfGroup("fast"), is_lenient=True) == 20


@pytest.mark.parametrize(("ms", "offset"), [(999, 10), (1000, 10), (1009, 10), (1010, 11), (2000, 19)])
def test_a_starting_time_with_the_upper_boundary(ms: int, offset: int) -> None:
    assert start(at(ms), boundary=Boundary.UPPER) == offset


def test_a_time_after_the_last_message() -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(at(1091))
    found = "orders/0 has no message stored at or after the asked start, 1970-01-01T00:00:01.091Z (in /data/store)"
    assert f"{found}. set the strategy" in str(caught.value)
    assert start(at(1091), unmatched_time=Fallback.LATEST) == end(at(1091)) == 20
    assert start(at(1091), unmatched_time=Fallback.EARLIEST) == 10


def test_an_empty_queue_matches_any_time() -> None:
    empty = FakeStore(bounds=QueueBounds(KEY, 5, 5))
    assert start(at(1091), empty) == end(at(1091), empty) == 5


def test_backwards_is_an_error_unless_lenient() -> None:
    def between(first: int, stop: int, **rules: bool) -> list[str]:
        return list(map(str, Resolver(FakeStore(), Rules(**rules), WORDS).between(At(first), At(stop), [BOUNDS])))

    assert between(14, 15) == ["orders/0[14, 15)"]
    assert between(15, 15) == between(16, 15, is_lenient=True) == []
    with pytest.raises(StartAfterEndError) as caught:
        between(16, 15)
    assert str(caught.value).startswith(
        "[SEGMENTLOG_RESOLVED_START_OFFSET_GREATER_THAN_END] orders/0 would be read from offset 16 to offset 15"
    )
    with pytest.raises(OffsetOutOfRangeError, match=r"start: offset 21 is after the end of all queues.*Pass a smaller"):
        between(21, 15, is_lenient=True)
    with pytest.raises(OffsetOutOfRangeError, match=f"end: offset {NOW_MS} is after .*2026-01-31T12:00:00Z"):
        between(15, NOW_MS, is_lenient=True)


@pytest.mark.parametrize(
    ("first", "stop", "problem"),
    [
        (at(2), at(1), r"start \(1970-01-01T00:00:00.002Z\) is after end \(1970-01-01T00:00:00.001Z\)"),
        (At(6), At(5), r"start \(6\) is after end \(5\)"),
        (Last(5), Last(6), r"start \(last:5\) is after end \(last:6\)"),
        (Latest(), Last(6), r"start \(latest\) is after end"),
        (Latest(), Earliest(), r"start \(latest\) is after end"),
    ],
)
def test_an_order_that_is_wrong_in_any_store(first: Position, stop: Position, problem: str) -> None:
    with pytest.raises(StartAfterEndError, match=problem):
        check_order(first, stop, WORDS)
    check_order(stop, stop, WORDS)


@pytest.mark.parametrize(
    ("position", "named"),
    [
        (listed(At(3)), None),
        (Earliest(), None),
        (listed(At(3), KEY, "broker-a"), None),
        (listed(At(3), QueueKey("orders", 9)), "orders/9,"),
        (listed(at(3), KEY, "broker-z"), "orders/0 of broker `broker-z`,"),
    ],
)
def test_tables_with_queues_that_are_not_read(position: Position, named: str | None) -> None:
    read = {("broker-a", KEY), ("broker-b", KEY)}
    if named is None:
        check_tables({"start": position}, read)
        return
    with pytest.raises(UnknownQueueError, match=f"start names {named} which is not read.*`orders/0`"):
        check_tables({"start": position}, read)


def test_queues_are_planned_again_where_times_are_found_to_fall_at_a_later_one() -> None:
    class Falling(FakeStore):
        """All times are read once the second queue was searched: a late message of the first one is then seen."""

        def offset_at(self, key: QueueKey, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
            self.times_fall = self.times_fall or key == other.key
            return 12 if self.times_fall else 15

        def end_at(self, key: QueueKey, time_ms: int) -> int:
            return 18

    other = QueueBounds(QueueKey("orders", 1), 10, 20)
    found = Resolver(Falling(), Rules(), WORDS).between(at(1050), at(1080), [BOUNDS, other])
    assert list(map(str, found)) == ["orders/0[12, 18)", "orders/1[12, 18)"]
