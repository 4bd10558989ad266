import subprocess
import sys

import pytest


def test_every_key_is_found_alone_and_among_all_keys(load, tmp_path):
    finding = load("sections.finding")
    keys = finding.keyed_store(tmp_path / "store", 1)
    assert len(set(keys)) == finding.BATCH_ROWS
    assert finding.all_at_once(tmp_path / "store", keys) > 0
    assert len(finding.one_by_one(tmp_path / "store", keys[-30:])) == 30
    with pytest.raises(AssertionError, match=f"{len(keys)} of {len(keys) + 1} keys were found"):
        finding.all_at_once(tmp_path / "store", [*keys, "none"])
    with pytest.raises(AssertionError, match="none"):
        finding.one_by_one(tmp_path / "store", [*keys[:10], "none"])


@pytest.mark.slow
def test_a_new_process_finds_a_key_and_fails_without(load, tmp_path):
    finding = load("sections.finding")
    keys = finding.keyed_store(tmp_path / "store", 1, 300)
    for key, code in ((keys[77], 0), ("none", 1)):
        command = [sys.executable, "-c", finding.ONE_KEY, str(tmp_path / "store"), finding.TOPIC, key]
        assert subprocess.run(command, capture_output=True, check=False).returncode == code
