import json
from pathlib import Path

from support.commands import run_command
from support.promoted import part, served


def test_the_report_states_the_part_that_is_cut_off(tmp_path: Path) -> None:
    pair = part(tmp_path, old=5, new=5)
    with served(pair.new) as server:
        asked = ["demote", pair.old, "--master", f"127.0.0.1:{server.port}"]
        planned = run_command(*asked, "--dry-run")
        assert planned.code == 1
        assert f"from physical offset {pair.parting} on" in planned.text
        assert "would be cut off, and copied to" in planned.text
        cut = run_command(*asked, "--json")
        again = run_command(*asked)
    found = json.loads(cut.out)
    assert (cut.code, found["start"], found["epoch"], found["dryRun"]) == (1, pair.parting, 1, False)
    assert Path(found["copy"]).is_dir()
    assert again.code == 0
    assert "nothing to cut off; it can follow the master of epoch 1" in again.text
