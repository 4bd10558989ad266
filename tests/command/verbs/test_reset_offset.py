import json
import shutil
from pathlib import Path

import pytest

from segmentlog.store.groups import group_offsets
from support.commands import run_command
from support.held_lock import held_elsewhere


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    """A copy of the store, in which group ``etl`` is at offset 20 of the four queues of ``orders``."""
    shutil.copytree(store, tmp_path / "broker-a")
    return tmp_path / "broker-a"


def positions(store: Path, group: str = "etl") -> dict[tuple[str, int], int]:
    return {(key.topic, key.queue_id): offset for key, offset in group_offsets(str(store), group).items()}


def test_a_dry_run_prints_the_change_and_changes_nothing(copy: Path) -> None:
    before = positions(copy)
    ran = run_command("reset-offset", copy, "etl", "--earliest", "--dry-run", "--json")
    assert ran.rows == [
        {"group": "etl", "topic": "orders", "queueId": queue, "before": 20, "after": 0, "recorded": "nowhere"}
        for queue in range(4)
    ]
    assert positions(copy) == before


@pytest.mark.parametrize(
    ("flags", "after"),
    [
        (("--earliest",), [0] * 4),
        (("--latest",), [100] * 4),
        (("--to-offset", "70"), [70] * 4),
        (("--to-offset", "700"), [100] * 4),
        (("--to-time", "2026-01-31T00:00:42Z"), [11, 11, 10, 10]),
        (("--to-time", "@1769817642000", "--boundary", "upper"), [10, 10, 10, 9]),
    ],
)
def test_positions_after_it(copy: Path, flags: tuple[str, ...], after: list[int]) -> None:
    ran = run_command("reset-offset", copy, "etl", *flags, "--json")
    assert [row["after"] for row in ran.rows] == after
    assert [positions(copy)["orders", queue] for queue in range(4)] == after


def recorded(out: bytes) -> set[str]:
    return {json.loads(line)["recorded"] for line in out.splitlines()}


def test_a_change_beside_a_broker_is_not_a_success(copy: Path) -> None:
    """Its consumers do not see the change, and a script looks at exit codes."""
    words = ("reset-offset", copy, "etl", "--to-offset")
    with held_elsewhere(copy):
        ran = run_command(*words, "7", "--json")
        assert (ran.code, recorded(ran.out)) == (1, {"sidecar"})
        assert positions(copy)["orders", 0] == 7
        ran = run_command(*words, "8", "--beside-broker", "--json")
        assert (ran.code, recorded(ran.out)) == (0, {"sidecar"})
        assert run_command(*words, "9", "--dry-run").code == 0
    ran = run_command(*words, "9", "--json")
    assert (ran.code, recorded(ran.out)) == (0, {"store"})


def test_a_topic_that_is_new_to_the_group(copy: Path) -> None:
    rows = run_command("reset-offset", copy, "etl", "--topic", "payments", "--latest", "--json").rows
    assert [(row["topic"], row["before"], row["after"]) for row in rows] == [("payments", None, 100)] * 4
    assert positions(copy)["orders", 0] == 20
