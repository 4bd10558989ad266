import pytest

from segmentlog.jobs.backfill import Written
from segmentlog.jobs.lake.ledger import Row, month_of, pack, unpack
from segmentlog.store import ConfigError
from support.lake import part_of

ROWS = [Row(part_of(number), Written(number, 2, 3), f"attempt{number}") for number in range(1_000)]


def test_rows_are_read_as_they_were_packed() -> None:
    assert unpack(pack(reversed(ROWS)), "here") == ROWS
    assert unpack(pack([]), "here") == []


def test_a_month_of_hours_is_small() -> None:
    month = [row for row in ROWS if month_of(row.part) == "2026-02"]
    assert len(month) == 28 * 24
    assert len(pack(month)) < 40 * len(month)


@pytest.mark.parametrize("text", ["", "x", "eA==", pack(ROWS)[:-8]])
def test_another_text_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match="property p of t is not a ledger of a backfill"):
        unpack(text, "property p of t")


@pytest.mark.parametrize("text", ["", "1", "[1, 2, 3]", '[{"window": [1]}, [1, 2, 3], "a"]'])
def test_another_row_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match="snapshot 5 is not a part of a backfill"):
        Row.from_json(text, "snapshot 5")
