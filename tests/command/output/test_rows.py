from pathlib import Path

import pyarrow.parquet as pq
import pytest

from segmentlog.command import progress
from segmentlog.command.output import rows, writers
from support.commands import run_command


def test_a_file_is_complete_or_absent(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "queues.parquet"
    ran = run_command("queues", store, "-w", file)
    assert (ran.code, ran.out, ran.err) == (0, b"", "")
    assert pq.read_table(file).num_rows == 9

    def failing(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writers.Parquet, "write", failing)
    assert run_command("queues", store, "-w", tmp_path / "other.parquet").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["queues.parquet"]


def test_a_file_is_not_replaced(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "queues.csv"
    file.write_text("mine")
    ran = run_command("queues", store, "-w", file)
    assert ran.code == 2
    assert f"-w: `{file}` exists" in ran.err
    assert file.read_text() == "mine"


def test_a_file_that_appears_meanwhile_is_not_replaced(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "queues.csv"

    def overtaken(*_: object) -> int:
        file.write_text("theirs")
        return 1

    monkeypatch.setattr(rows, "_write", overtaken)
    assert run_command("queues", store, "-w", file).code == 2
    assert file.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["queues.csv"]


def test_progress_is_for_terminals_and_goes_away(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_TERMINAL_S", 0.0)
    assert run_command("queues", store, "-w", tmp_path / "a.csv").err == ""
    shown = run_command("queues", store, "-w", tmp_path / "b.csv", terminal=True).err
    assert "9 rows, " in shown
    assert shown.endswith("\x1b[2K")  # the line is erased
    assert run_command("queues", store, terminal=True).err == ""
