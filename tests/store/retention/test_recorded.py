"""Our decisions beside RocketMQ's own, as they were recorded from runs of four releases.

`tests/interop/test_retention.py` asks RocketMQ again; `support.retention_states` says what a case is.
"""

import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from segmentlog.store.retention import policy
from support import retention_states
from support.retention_states import Recorded, differences

FOLDER = Path(__file__).parent / "recorded"
LEAST = {"5.1.0": 300, "4.9.1": 100, "5.3.3": 100, "5.5.1": 120}


@pytest.fixture(scope="module", params=LEAST)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cases(version: str) -> Recorded:
    return retention_states.recorded(FOLDER / f"{version}.json.gz")


def disagreeing(cases: Recorded, version: str) -> Iterator[str]:
    for case, rounds in cases.cases:
        for found in differences(case, rounds, version, cases.stores[case.store]):
            yield f"{case}: {found}"


def test_the_same_files_go_in_the_same_order_and_puts_are_refused_alike(version: str, cases: Recorded) -> None:
    assert len(cases.cases) >= LEAST[version]
    assert list(disagreeing(cases, version)) == []


def test_every_rule_comes_up(version: str, cases: Recorded) -> None:
    seen: Counter[str] = Counter()
    for case, rounds in cases.cases:
        settings = retention_states.settings_of(case, version)
        for each in rounds:
            seen["failed"] += each.time_up is None
            seen["time"] += each.time_up is True and bool(each.log)
            seen["space"] += each.space_short is True and not each.time_up and bool(each.log)
            seen["manual"] += each.manual and not (each.time_up or each.space_short) and bool(each.log)
            seen["forced"] += each.forced is True and bool(each.log)
            seen["not forced"] += each.forced is True and not settings.force_enabled
            seen["refused"] += each.disk_full
            seen["limited"] += len(each.log) == settings.files_max
            seen["queues"] += bool(each.queues)
            seen["index"] += bool(each.index)
            seen["held"] += bool(case.holds) and each.log_start not in {-1, 0} and not each.log
        seen["later rounds"] += any(each.log for each in rounds[1:])
        seen["held index"] += "index" in case.holds
        seen["held queue"] += any("/" in name for name in case.holds)
    never = [name for name, count in seen.items() if not count]
    assert never == []


PLANTED = {
    "the newest segment goes": ("candidates = max(log.base.size - 1, 0)", "candidates = log.base.size"),
    "a segment expires a millisecond late": ("_HOUR_MS <= now", "_HOUR_MS < now"),
    "a young segment does not end the run": (
        "            break\n        file = FileId",
        "            continue\n        file = FileId",
    ),
    "one segment too many": ("if len(found) >= settings.files_max", "if len(found) > settings.files_max"),
    "forced although disabled": ("forced = forced and settings.force_enabled", "forced = bool(forced)"),
    "a manual run does not count": ("manual_left -= manual", "manual_left -= 0"),
    "an idle manual run does not count": ("manual_left -= manual", "manual_left -= manual and bool(time_up)"),
    "no retry": ("if now.ms - retried_ms > settings.retry_ms", "if now.ms < 0"),
    "the retry comes in each run": ("            retried_ms = now.ms\n", ""),
    "a hung segment is the log's start": ("if FileId(Kind.LOG, base) not in hung", "if hung is not None"),
    "held files go": ("if held and (since", "if since == 0 and (since"),
    "held files never go": ("now - since < held_ms", "now >= since"),
    "queue files at the log's start go": ("files.last_physical < start", "files.last_physical <= start"),
    "the last queue file goes": ("    goes &= ~is_last\n", "    goes |= is_last\n"),
    "queues are cleaned in each run": ("        cleaned_to = log_start\n", ""),
    "the last index file goes": ("range(files.name.size - 1)", "range(files.name.size)"),
    "a wrong hour is skipped": ("            raise ValueError", "            continue\n            raise ValueError"),
    "an hour after the match is read": (
        "            return True\n    return False",
        "            matched = True\n    return bool(locals().get('matched'))",
    ),
    "shares are not rounded up": ("-(-used * 100 //", "(used * 100 //"),
    "the force level refuses puts": ("disk_full=disk_full or log > limits.refuse", "disk_full=True"),
    "the force level clears the refusal": (
        "disk_full=disk_full or log > limits.refuse",
        "disk_full=log > limits.refuse",
    ),
    "the refusal stays": (
        "return Verdict(delete=short, forced=False, disk_full=False)",
        "return Verdict(delete=short, forced=False, disk_full=disk_full)",
    ),
    "the queues' disk is not looked at": ("    if queues > force:", "    if queues > 2:"),
    "at the level counts": ("share > limits.delete for share", "share >= limits.delete for share"),
    "4.9 deletes at the force level": (
        "        elif share > limits.force:\n            forced = True",
        "        elif share > limits.force:\n            return Verdict(delete=True, forced=True, disk_full=disk_full)",
    ),
    "4.9 looks at both disks": (
        "            return Verdict(delete=True, forced=forced, disk_full=disk_full)",
        "            pass",
    ),
    "4.9 checks the queues' disk, too": (
        "return used_share(disks.logs[0], settings.release) > settings.thresholds.refuse",
        "return disk_full",
    ),
}


@pytest.fixture(scope="module")
def all_cases() -> dict[str, Recorded]:
    return {version: retention_states.recorded(FOLDER / f"{version}.json.gz") for version in LEAST}


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
