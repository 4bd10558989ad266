"""Job demote: its report, as text and JSON, before and after."""

import json
from pathlib import Path

import pytest

from segmentlog.jobs import demote
from support.promoted import part, served


def test_the_report_says_what_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = part(tmp_path, old=5, new=5)
    with served(pair.new) as server:
        asked = [str(pair.old), "--master", f"127.0.0.1:{server.port}"]
        assert demote.main([*asked, "--dry-run"]) == 1
        assert f"from physical offset {pair.parting} on" in (planned := capsys.readouterr().out)
        assert "would be cut off, and copied to" in planned
        assert demote.main([*asked, "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert demote.main(asked) == 0
    assert (found["start"], found["epoch"], found["dryRun"]) == (pair.parting, 1, False)
    assert Path(found["copy"]).is_dir()
    assert "nothing to cut off; it can follow the master of epoch 1" in capsys.readouterr().out


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    parser = demote.command_line("demote", "")
    demote.add_arguments(parser)
    full = ["s", "--master", "h:1", "--tls", "c", "k", "a", "--dry-run"]
    asked = demote.Args(store="s", master="h:1", tls=("c", "k", "a"), dry_run=True)
    assert demote.parse(parser.parse_args(full)) == asked
    assert demote.main(["s", "--master", "nowhere", "--json"]) == 2
    assert "the address 'nowhere' is not host:port" in capsys.readouterr().out
