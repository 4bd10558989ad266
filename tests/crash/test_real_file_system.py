"""Promises on the real file system: at each, all that it needs is on the device, whatever other threads do meanwhile.

::

    strace   12 pwrite64(5</…/commitlog/0…0>, "…"..., 300, 1200 <unfinished ...>    thread 12 ├─write─┤
             13 fdatasync(5</…/commitlog/0…0> <unfinished ...>                      thread 13   ├──sync──┤
             12 <... pwrite64 resumed>) = 300
             13 <... fdatasync resumed>) = 0                    a sync covers writes that ended before it began
             12 write(7</…/marks>, "1500\n", 5) = 5             promised: the log up to 1500, before the call began

Processes write with several threads, the real lock and the service threads. What a power cut makes of the calls of one
thread, in all orders, is enumerated by the other tests of this folder.
"""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from support.crash.real_worker import BUGS, CONFIGS
from support.scale import sample, scale
from support.strace import WHY_NOT

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.attack,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there"),
]

TESTS = Path(__file__).parent.parent
SEEDS = scale(1, 1, 40)
WRITES, SYNCS, RENAMES = ("pwrite64", "pwritev"), ("fsync", "fdatasync", "syncfs"), ("rename", "renameat", "renameat2")
_LINE = re.compile(r"(\d+) +(?:<\.\.\. \w+ resumed>|(\w+)\()(.*)")
_UNFINISHED = " <unfinished ...>"


class Call(NamedTuple):
    """A call that succeeded; ``begin`` and ``end`` are numbers of lines of the trace."""

    thread: str
    name: str
    text: str  # arguments and result
    begin: int
    end: int

    @property
    def path(self) -> str:
        """The file of the descriptor that it is given."""
        found = re.match(r"\d+<([^>]*)>", self.text)
        return found[1] if found else ""

    @property
    def names(self) -> list[str]:
        return re.findall(r'"([^"]*)"', self.text)

    @property
    def position(self) -> int:
        """Where a write begins."""
        found = re.search(r", (\d+)\) += \d+$", self.text)
        assert found is not None, self
        return int(found[1])


def calls_of(lines: Sequence[str]) -> list[Call]:
    found: list[Call] = []
    under_way: dict[str, tuple[str, str, int]] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:  # a thread ended
            continue
        thread, name, text = match.groups()
        begin = number
        if name is None:
            name, before, begin = under_way.pop(thread)
            text = before + text
        if text.endswith(_UNFINISHED):
            under_way[thread] = name, text.removesuffix(_UNFINISHED), begin
        elif not re.search(r"\) += -1 ", text):
            found.append(Call(thread, name, text, begin, number))
    return found


def traced(folder: Path, *errand: str) -> list[Call]:
    """Run a worker under the tracer; return its calls."""
    folder.mkdir()
    names = ",".join((*WRITES, *SYNCS, *RENAMES, "openat", "write"))
    tracer = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "32", "-e", "signal=none", "-e", f"trace={names}", "-o"]
    command = [*tracer, folder / "trace", sys.executable, "-m", "support.crash.real_worker", folder, *errand]
    done = subprocess.run(command, cwd=TESTS, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return calls_of((folder / "trace").read_text(encoding="utf-8", errors="replace").splitlines())


class Device:
    """When what the calls of a trace changed was on the device."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._syncs: dict[str, list[Call]] = defaultdict(list)
        for call in calls:
            if call.name in SYNCS:
                self._syncs["" if call.name == "syncfs" else call.path].append(call)

    def has(self, path: str, change: Call, before: Call) -> bool:
        """Tell whether a change of a file or directory was on the device before another call began."""
        syncs = (*self._syncs[path], *self._syncs[""])
        return any(change.end < sync.begin and sync.end < before.begin for sync in syncs)

    def overlaps(self, write: Call) -> bool:
        return any(write.begin < sync.end and sync.begin < write.end for sync in self._syncs[write.path])


def needs(call: Call, mark: Call) -> str | None:
    """Return the file or directory that has to be synced after a call for a promise, if it needs the call."""
    end = int(mark.names[0].removesuffix(r"\n"))
    if call.name in WRITES and "/commitlog/" in call.path:
        return call.path if int(call.path.rpartition("/")[2]) + call.position < end else None
    if call.name not in RENAMES and not (call.name == "openat" and "O_CREAT" in call.text):
        return None
    folder, _, name = call.names[-1].rpartition("/")
    is_segment = folder.endswith("/commitlog") and int(name) < end
    is_ledger = name == "ledger" and call.thread == mark.thread
    return folder if is_segment or is_ledger else None


def broken_promises(calls: Sequence[Call]) -> list[str]:
    """Return what was promised, or renamed, and was not on the device."""
    device, found = Device(calls), []
    for mark in (call for call in calls if call.name == "write" and call.path.endswith("/marks")):
        for call in calls:
            path = needs(call, mark) if call.begin < mark.begin else None
            if path is not None and not device.has(path, call, mark):
                found.append(f"not on the device: {call}, at {mark}")
    for rename in (call for call in calls if call.name in RENAMES and "/.segmentlog/" in call.names[-1]):
        made = max((call.end for call in calls if call.name == "openat" and call.names == rename.names[:1]), default=0)
        writes = [call for call in calls if call.name in WRITES and call.path == rename.names[0] and call.begin > made]
        found += [
            f"not on the device: {write}, at {rename}"
            for write in writes
            if write.end < rename.begin and not device.has(write.path, write, rename)
        ]
    return found


@pytest.mark.parametrize("config", sample([*CONFIGS], 1))
def test_what_is_promised_is_on_the_device(config: str, tmp_path: Path) -> None:
    overlaps = promises = 0
    for seed in range(SEEDS):
        calls = traced(tmp_path / str(seed), config, str(seed))
        assert broken_promises(calls) == []
        device = Device(calls)
        writes = [call for call in calls if call.name in WRITES and "/commitlog/" in call.path]
        overlaps += sum(map(device.overlaps, writes))
        promises += sum(call.name == "write" and call.path.endswith("/marks") for call in calls)
        assert len({call.path for call in writes}) > 1, "one segment was enough for all of it"
    assert promises >= 12 * SEEDS
    assert overlaps, "threads did not get into each other's way"


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_seen(bug: str, tmp_path: Path) -> None:
    assert any(broken_promises(traced(tmp_path / str(seed), "sync", str(seed), bug)) for seed in range(10))
