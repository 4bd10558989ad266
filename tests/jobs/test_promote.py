"""Job promote: its report, as text and JSON, and its errors."""

import json
from pathlib import Path

import pytest

from segmentlog.jobs import promote
from segmentlog.store import MessageStore
from support.promoted import PLAIN, append


def test_the_report_names_epoch_and_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store"
    end = append(path, range(5))
    assert promote.main([str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"store": str(path), "epoch": 1, "start": end, "copy": None}
    assert promote.main([str(path)]) == 0
    assert f"master of epoch 2, which begins at physical offset {end}" in capsys.readouterr().out


def test_a_store_in_use_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MessageStore.open(tmp_path / "store", PLAIN):
        assert promote.main([str(tmp_path / "store"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "SEGMENTLOG_STORE_IN_USE"
