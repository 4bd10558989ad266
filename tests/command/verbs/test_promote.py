import json
from pathlib import Path

from segmentlog.store import MessageStore
from support.commands import run_command
from support.promoted import PLAIN, append


def test_the_report_names_epoch_and_start(tmp_path: Path) -> None:
    path = tmp_path / "store"
    end = append(path, range(5))
    ran = run_command("promote", path, "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"store": str(path), "epoch": 1, "start": end, "copy": None})
    ran = run_command("promote", path)
    assert ran.code == 0
    assert f"master of epoch 2, which begins at physical offset {end}" in ran.text


def test_a_store_in_use_and_a_path_without_a_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", PLAIN):
        assert run_command("promote", tmp_path / "store", "--json").error["code"] == "SEGMENTLOG_STORE_IN_USE"
    ran = run_command("promote", tmp_path / "nothing")
    assert (ran.code, ran.out) == (2, b"")
    assert not (tmp_path / "nothing").exists()
