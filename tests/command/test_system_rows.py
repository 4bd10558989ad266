"""Arguments that the verbs of system topics share."""

from pathlib import Path

from support.commands import run_command
from support.system_store import build_system_store


def test_topics_times_and_numbers_limit_the_rows(tmp_path: Path) -> None:
    path = build_system_store(tmp_path / "broker-a")
    assert len(run_command("delayed", path, "orders", "--json").rows) == 2
    nothing = run_command("delayed", path, "payments", "--json")
    assert (nothing.code, nothing.rows) == (1, [])
    assert len(run_command("delayed", path, "-n", "1", "--json").rows) == 1
    assert len(run_command("delayed", path, "--day", "2023-11-14", "--json").rows) == 2
    late = run_command("delayed", path, "--from", "2023-11-14T22:13:21Z", "--json").rows
    assert [row["kind"] for row in late] == ["timer"]
    early = run_command("delayed", path, "--to", "2023-11-14T22:13:21Z", "--json").rows
    assert [row["kind"] for row in early] == ["level"]
