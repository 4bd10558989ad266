"""S5: a writer is killed at every single call of the operating system, and S6: each of them fails once, or for good.

::

    nursery ── fork ──► writer    put, reopen, put, …     pwrite64 1, 2, 3, … pwritev 1, … fdatasync 1, …
                          ▲                                         ▲
                        strace -p …  inject=pwrite64:signal=KILL:when=3

The writer has one thread and does the same each time, so the n-th call is the same one, too. ``strace`` counts each
kind of call by itself.
"""

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.scale import scale
from support.strace import WHY_NOT
from support.writer_nursery import Errand, Nursery, Outcome
from support.written_stores import SMALL, Judge, Tally

CALLS = ("pwrite64", "pwritev", "fdatasync", "fsync", "fallocate", "ftruncate", "rename", "unlink", "mkdir")
SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
ERRORS = scale(15, 40, 5_000)
STRIDE = scale(12, 1, 1)
"""Step from one call of a kind at which the writer is killed to the next."""
SIGKILL = -9


pytestmark = [
    pytest.mark.scaled(quick=0),
    pytest.mark.attack,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there"),
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


def errand(store: Path, *traced: str) -> Errand:
    return Errand(store=str(store), seed=SEED, writer=1, thorough=True, traced=("-f", *traced))


def calls_of(nursery: Nursery, folder: Path) -> Counter[str]:
    listing = folder / "calls"
    came = nursery.send(errand(folder / "undisturbed", "-o", str(listing), "-e", f"trace={','.join(CALLS)}"))
    assert came.status == 0, came.error
    Judge(SEED, SMALL).judge(folder / "undisturbed", came.heard)
    return Counter(re.findall(r"^\d+ +(\w+)\(", listing.read_text(), re.MULTILINE))


def test_a_kill_at_every_system_call_loses_nothing(
    nursery: Nursery, tmp_path: Path, report: Callable[[str, object], None]
) -> None:
    total, tried = Tally(), 0
    calls = calls_of(nursery, tmp_path)
    for call, times in sorted(calls.items()):
        for when in range(1, times + 1, STRIDE):
            store = tmp_path / "store"
            tried += 1
            came = nursery.send(errand(store, "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={when}"))
            try:
                assert came.status == SIGKILL, f"{came.error} {came.trace}"
                if store.exists():  # it was not killed before it made any
                    judged(store, came, total)
            except Exception as error:
                error.add_note(f"killed at {call} {when} of {times}")
                raise
    report(f"S5, {tried} of {sum(calls.values())} calls {dict(calls)}", f"{total}")
    assert sum(calls.values()) >= 300
    assert min(calls[call] for call in CALLS) >= 1
    assert tried >= sum(calls.values()) // STRIDE
    assert total.judged >= tried - scale(len(CALLS), 2, 2)
    assert total.with_acknowledged >= total.judged // 2
    assert min(total.kept, total.lost) >= scale(1, 20, 20)


def test_a_call_that_fails_is_not_a_message_lost(
    nursery: Nursery, tmp_path: Path, report: Callable[[str, object], None]
) -> None:
    total, errors = Tally(), Counter[str]()
    calls = calls_of(nursery, tmp_path)
    rng = random.Random(SEED)
    for _ in range(ERRORS):
        call = rng.choice(CALLS)
        when = rng.randrange(1, calls[call] + 1)
        failure = rng.choice(["EIO", "ENOSPC", "EDQUOT", "EMFILE"])
        more = rng.choice(["", "+"])
        store = tmp_path / "store"
        came = nursery.send(errand(store, "-o", "/dev/null", "-e", f"inject={call}:error={failure}:when={when}{more}"))
        try:
            assert came.status in {0, 3}, f"{came.error} {came.trace}"
            errors[came.error.partition(":")[0] or "none"] += 1
            if store.exists():
                judged(store, came, total)
        except Exception as error:
            error.add_note(f"{failure} at {call} {when}{more} of {calls[call]}: {came.error}")
            raise
    report(f"S6 by strace, seed {SEED}", f"{total}; raised {dict(errors)}")
    assert errors["StoreFailedError"] >= ERRORS // 20
    assert errors["NoSpaceError"] >= ERRORS // 50
    assert total.with_acknowledged >= ERRORS // 4


def judged(store: Path, came: Outcome, total: Tally) -> None:
    judge = Judge(SEED, SMALL)
    judge.judge(store, came.heard, refused=came.refused)
    total.add(judge.tally)
    shutil.rmtree(store)
