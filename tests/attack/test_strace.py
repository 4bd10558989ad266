"""S5: a writer is killed at every single call of the operating system.

::

    fork server ──► writer    put, reopen, put, …     pwrite64 1, 2, 3, … pwritev 1, … fdatasync 1, …
                          ▲                                         ▲
                        strace -p …  inject=pwrite64:signal=KILL:when=3

The writer has one thread and does the same each time, so the n-th call is the same one, too. ``strace`` counts each
kind of call by itself.
"""

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from support.scale import Report, scale
from support.strace import WHY_NOT
from support.writer_nursery import Errand, send
from support.written_stores import SMALL, Judge, Tally

CALLS = ("pwrite64", "pwritev", "fdatasync", "fsync", "fallocate", "ftruncate", "rename", "unlink", "mkdir")
SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
STRIDE = scale(12, 1, 1)
"""Step from one call of a kind at which the writer is killed to the next."""
SIGKILL = -9

pytestmark = [
    pytest.mark.scaled(quick=0),
    pytest.mark.attack,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there"),
]


def errand(store: Path, *traced: str) -> Errand:
    return Errand(store=str(store), seed=SEED, writer=1, thorough=True, traced=("-f", *traced))


def test_a_kill_at_every_system_call_loses_nothing(tmp_path: Path, report: Report) -> None:
    total, tried, store, listing = Tally(), 0, tmp_path / "store", tmp_path / "calls"
    came = send(errand(tmp_path / "whole", "-o", str(listing), "-e", f"trace={','.join(CALLS)}"))
    assert came.status == 0, came.error
    Judge(SEED, SMALL).judge(tmp_path / "whole", came.heard)
    calls = Counter(re.findall(r"^\d+ +(\w+)\(", listing.read_text(), re.MULTILINE))
    for call, when in [(name, at + 1) for name in sorted(calls) for at in range(0, calls[name], STRIDE)]:
        tried += 1
        came = send(errand(store, "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={when}"))
        try:
            assert came.status == SIGKILL, f"{came.error} {came.trace}"
            if store.exists():  # it was not killed before it made any
                judge = Judge(SEED, SMALL)
                judge.judge(store, came.heard)
                total.add(judge.tally)
                shutil.rmtree(store)
        except Exception as error:
            error.add_note(f"killed at {call} {when} of {calls[call]}")
            raise
    report(f"S5, {tried} of {sum(calls.values())} calls", total)
    assert sum(calls.values()) >= 300
    assert min(calls[call] for call in CALLS) >= 1
    assert tried >= sum(calls.values()) // STRIDE
    assert total.judged >= tried - scale(len(CALLS), 2, 2)
    assert total.with_acknowledged >= total.judged // 2
    assert min(total.kept, total.lost) >= scale(1, 20, 20)
