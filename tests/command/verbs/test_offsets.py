from pathlib import Path

import pytest

from support.commands import run_command


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--at", "2026-01-31T00:00:04Z"], [1, 1, 1, 1]),
        (["--at", "2026-01-31T00:00:05Z"], [2, 1, 1, 1]),
        (["--at", "2026-01-31T00:00:04Z", "--boundary", "upper"], [1, 0, 0, 0]),
        (["--at", "@0"], [0, 0, 0, 0]),
        (["--at", "2030-01-01T00:00:00Z"], [100, 100, 100, 100]),
    ],
)
def test_offsets_of_a_time(store: Path, flags: list[str], expected: list[int]) -> None:
    rows = run_command("offsets", store, "orders", *flags, "--json").rows
    assert [row["offset"] for row in rows] == expected


def test_the_message_there(store: Path) -> None:
    rows = run_command("offsets", store, "--at", "2026-01-31T00:00:06Z", "--json").rows
    assert [row["topic"] for row in rows] == ["%RETRY%etl", *["orders"] * 4, *["payments"] * 4]
    assert rows[3] == {
        "topic": "orders",
        "queueId": 2,
        "offset": 1,
        "minOffset": 0,
        "maxOffset": 100,
        "storeTimestamp": "2026-01-31T00:00:06.000Z",
    }
    end = run_command("offsets", store, "orders", "--at", "2030-01-01T00:00:00Z", "--json").rows
    assert {row["storeTimestamp"] for row in end} == {None}
