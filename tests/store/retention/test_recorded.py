"""Our decisions beside RocketMQ's own, as they were recorded from runs of four releases.

`tests/interop/test_retention.py` asks RocketMQ again; `support.retention_states` says what a case is.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from segmentlog.store.retention import policy
from support import retention_states
from support.retention_states import Recorded, differences

FOLDER = Path(__file__).parent / "recorded"
LEAST = {"4.9.1": 100, "5.1.0": 300, "5.3.3": 100, "5.5.1": 120}


@pytest.fixture(scope="module")
def all_cases() -> dict[str, Recorded]:
    return {version: retention_states.recorded(FOLDER / f"{version}.json.gz") for version in LEAST}


def disagreeing(cases: Recorded, version: str) -> Iterator[str]:
    for case, rounds in cases.cases:
        for found in differences(case, rounds, version, cases.stores[case.store]):
            yield f"{case}: {found}"


@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("version", LEAST)
def test_the_same_files_go_in_the_same_order_and_puts_are_refused_alike(
    version: str, all_cases: dict[str, Recorded]
) -> None:
    assert len(all_cases[version].cases) >= LEAST[version]
    assert list(disagreeing(all_cases[version], version)) == []


PLANTED = {
    "the newest segment goes": ("candidates = max(log.base.size - 1, 0)", "candidates = log.base.size"),
    "a segment expires a millisecond late": ("_HOUR_MS <= now", "_HOUR_MS < now"),
    "forced although disabled": ("forced = forced and settings.force_enabled", "forced = bool(forced)"),
    "a manual run does not count": ("manual_left -= manual", "manual_left -= 0"),
    "no retry": ("if now.ms - retried_ms > settings.retry_ms", "if now.ms < 0"),
    "held files go": ("if held and (since", "if since == 0 and (since"),
    "the last queue file goes": ("    goes &= ~is_last\n", "    goes |= is_last\n"),
    "a wrong hour is skipped": ("            raise ValueError", "            continue\n            raise ValueError"),
    "shares are not rounded up": ("-(-used * 100 //", "(used * 100 //"),
    "the force level refuses puts": ("disk_full=disk_full or log > limits.refuse", "disk_full=True"),
    "the queues' disk is not looked at": ("    if queues > force:", "    if queues > 2:"),
    "4.9 deletes at the force level": (
        "        elif share > limits.force:\n            forced = True",
        "        elif share > limits.force:\n            return Verdict(delete=True, forced=True, disk_full=disk_full)",
    ),
}


@pytest.mark.scaled(quick=3)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_seen(bug: str, all_cases: dict[str, Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = PLANTED[bug]
    source = inspect.getsource(policy)
    assert source.count(right) == 1, "the place of this bug is gone, it wants another one"
    broken = ModuleType(policy.__name__)
    broken.__package__ = policy.__package__
    exec(compile(source.replace(right, wrong), bug, "exec"), broken.__dict__)
    monkeypatch.setattr(retention_states, "decide", broken.decide)
    assert any(True for version, cases in all_cases.items() for _ in disagreeing(cases, version))
