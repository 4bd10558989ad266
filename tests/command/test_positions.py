"""Positions of ``--from`` and ``--to``, and the queue offsets that they stand for."""

from pathlib import Path

import pytest

from segmentlog.command.errors import UsageError
from segmentlog.command.positions import (
    EARLIEST,
    LATEST,
    At,
    Last,
    Offset,
    OfGroup,
    Position,
    offsets,
    parse_end,
    parse_start,
    parse_time,
)
from segmentlog.store import ConfigError, QueueKey, StoreReader

START_MS = 1_769_817_600_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("beginning", EARLIEST),
        ("latest", LATEST),
        ("end", LATEST),
        ("12", Offset(12)),
        ("-12", Last(12)),
        ("2026-01-31T00:00:00Z", At(START_MS)),
        ("2026-01-31T02:00:00+02:00", At(START_MS)),
        ("2026-01-31T00:00:00.0001Z", At(START_MS + 1)),
        ("@1769817600000", At(START_MS)),
        ("s@1769817600000", At(START_MS)),
        ("group:etl", OfGroup("etl")),
    ],
)
def test_starts(text: str, position: Position) -> None:
    assert parse_start(text) == position


def test_ends() -> None:
    assert parse_end("e@1769817600000") == At(START_MS)
    assert parse_end("-1") == Last(1)
    for text in ("s@1769817600000", "group:etl"):
        with pytest.raises(UsageError, match="is no position"):
            parse_end(text)


@pytest.mark.parametrize("text", ["", "-", "--1", "1.5", "noon", "group:", "@", "@x", "e@1", "\u0661", "+1"])
def test_what_is_no_start(text: str) -> None:
    with pytest.raises(UsageError, match="is no position") as caught:
        parse_start(text)
    assert "-N for the last N messages" in str(caught.value)


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(UsageError, match="`2026-01-31` has no time zone"):
        parse_start("2026-01-31")
    with pytest.raises(UsageError, match="`noon` is no time"):
        parse_time("noon")
    assert parse_time("@5") == 5


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (EARLIEST, [0, 0, 0, 0]),
        (LATEST, [100, 100, 100, 100]),
        (Offset(7), [7, 7, 7, 7]),
        (Last(3), [97, 97, 97, 97]),
        (Last(300), [0, 0, 0, 0]),
        (At(START_MS + 2_000), [1, 1, 0, 0]),
        (OfGroup("etl"), [20, 20, 20, 20]),
    ],
)
def test_offsets_of_positions(store: Path, position: Position, expected: list[int]) -> None:
    reader = StoreReader.open(store)
    queues = {bounds.key: bounds for bounds in reader.queues("orders")}
    found = offsets("--from", position, reader, queues)
    assert [found[QueueKey("orders", queue)] for queue in range(4)] == expected


def test_offsets_after_the_ends(store: Path) -> None:
    reader = StoreReader.open(store)
    queues = {bounds.key: bounds for topic in ("orders", "%RETRY%etl") for bounds in reader.queues(topic)}
    found = offsets("--from", Offset(50), reader, queues)
    assert found[QueueKey("%RETRY%etl", 0)] == 3
    assert found[QueueKey("orders", 0)] == 50
    with pytest.raises(UsageError, match="--from: offset 101 is after the end of all queues"):
        offsets("--from", Offset(101), reader, queues)
    with pytest.raises(ConfigError, match="consumer group `elt` has no position here"):
        offsets("--from", OfGroup("elt"), reader, queues)
