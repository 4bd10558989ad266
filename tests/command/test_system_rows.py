from pathlib import Path

import pytest

import segmentlog
from support.commands import run_command
from support.system_store import build_system_store


@pytest.mark.parametrize(
    ("verb", "column", "values"),
    [
        ("delayed", "state", ["pending", "pending"]),
        ("trace", "error", [None, "the type of the entry is unknown"]),
        ("transactions", "outcome", ["pending"]),
    ],
)
def test_rows_are_printed_as_python_returns_them(
    verb: str, column: str, values: list[str | None], tmp_path: Path
) -> None:
    path = build_system_store(tmp_path / "broker-a")
    rows = run_command(verb, path, "--json").rows
    expected = getattr(segmentlog.open(path), verb)().to_arrow()
    assert [list(row) for row in rows] == [expected.schema.names] * len(values)
    assert [row[column] for row in rows] == expected[column].to_pylist() == values
    assert run_command(verb, path).text.split()[0] == "brokerName"


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (["orders"], ["level", "timer"]),
        (["payments"], []),
        (["-n", "1"], ["level"]),
        (["--day", "2023-11-14"], ["level", "timer"]),
        (["--from", "2023-11-14T22:13:21Z"], ["timer"]),
        (["--to", "2023-11-14T22:13:21Z"], ["level"]),
    ],
)
def test_topics_times_and_numbers_limit_the_rows(flags: list[str], kinds: list[str], tmp_path: Path) -> None:
    ran = run_command("delayed", build_system_store(tmp_path / "broker-a"), *flags, "--json")
    assert ([row["kind"] for row in ran.rows], ran.code) == (kinds, 0 if kinds else 1)
