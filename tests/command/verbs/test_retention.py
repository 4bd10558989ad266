"""Verb ``retention``."""

import json
import os
from pathlib import Path

from support.commands import run_command
from support.small_store import CONFIG, write_small_store
from support.tampering import segments

NOW_MS = 1_763_700_000_000


def aged(tmp_path: Path) -> Path:
    """A store whose first two segments have expired at `NOW_MS`."""
    path = write_small_store(tmp_path / "store")
    for number, segment in enumerate(segments(path)):
        os.utime(segment, ns=(0, (NOW_MS - (0 if number > 1 else 100 * 3_600_000)) * 1_000_000))
    return path


def test_the_plan_is_what_apply_deletes(tmp_path: Path) -> None:
    store = aged(tmp_path)
    flags = ("--now", NOW_MS, "--hour", 4, "--disk-usage", 10, "--json")
    planned = run_command("retention", "plan", store, *flags)
    assert (planned.code, planned.err) == (0, "")
    plan = json.loads(planned.out)
    expired = [f"commitlog/{number * CONFIG.segment_bytes:020d}" for number in range(2)]
    assert [each["file"] for each in plan["runs"][0]["deleted"]][:2] == expired
    assert all((store / file).exists() for file in expired)
    applied = json.loads(run_command("retention", "apply", store, *flags).out)
    assert {**applied, "action": "plan"} == plan
    assert not any((store / file).exists() for file in expired)


def test_wrong_arguments(tmp_path: Path) -> None:
    store = aged(tmp_path)
    assert "invalid choice: 'drop'" in run_command("retention", "drop", store).err
    assert "--hour is 99" in run_command("retention", "plan", store, "--hour", 99).err
    full = run_command("retention", "plan", store, "--disk-usage", "full").err
    assert "--disk-usage: 'full' is no percentage" in full
    assert run_command("retention", "plan", tmp_path / "no", "--json").error["code"] == "SEGMENTLOG_NOT_A_STORE"
    assert "--min-age is 'orders'" in run_command("retention", "plan", store, "--min-age", "orders").err
