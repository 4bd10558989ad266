"""S18: bugs are planted in the store and its disk, one at a time; each is seen, and nothing is without."""

import random
import re
from collections.abc import Callable, Sequence

import pytest

from support.crash import planted
from support.crash.batches import committed, prepare_with, unflushed_batches
from support.crash.batches import cut_power as cut_batches
from support.crash.campaign import Effort, Front, cut_power, nothing, prepare, reopen
from support.crash.driver import CONFIG, LATE
from support.crash.faulted import check_error, damage_everywhere, faulted_driver, judge_end
from support.crash.faults import Failure, Fault, Span
from support.crash.mutants import MUTANTS, Mutant, Trial
from support.crash.promises import contents
from support.crash.recorder import Kind, Op
from support.crash.states import Breadth, States, labels
from support.crash.workloads import batches, even, failing, going_on, reopened, run, unflushed
from support.scale import scale

pytestmark = pytest.mark.attack

BREADTH = Breadth(exhaustive_bits=0, random_subsets=3, per_point=3, seed=18)
FEW = Breadth(exhaustive_bits=0, random_subsets=1, per_point=2, seed=18)
NARROW = Breadth(exhaustive_bits=0, random_subsets=2, per_point=6, seed=18)
EVERY = Breadth(exhaustive_bits=0, random_subsets=0, seed=18)
WIDE = Breadth(exhaustive_bits=0, random_subsets=3, seed=18)
EFFORT = Effort(keys=4, again=15, written_on=0, read=0)


def _cut(front: Front) -> int:
    """S1, reduced: some crash points of four workloads."""
    states = 0
    for workload, every, config in (
        (failing, 2, CONFIG),
        (reopened, 9, CONFIG),
        (unflushed, 9, CONFIG),
        (batches, 9, LATE),
    ):
        prepared = prepare(workload, 18, front=front, config=config)
        states += cut_power(prepared, BREADTH, EFFORT, points=lambda point, n=every: point % n == 0).states
    return states


def _recovery(front: Front) -> int:
    """S2, reduced: stores whose tail is torn, and the power is cut again while they are recovered."""
    prepared = prepare(even, 19, front=front)
    ops = prepared.recording.ops
    found = [(state.point, state.description) for state in States(prepared.recording, WIDE)]
    torn = [each for each in found if "random" in each[1] or "alone lost" in each[1]]
    # A hole in the log, then whole records: appends into the hole must not make them reappear.
    holes = [
        (point, description)
        for point, description in torn
        if (call := re.fullmatch(r"call (\d+) alone lost", description))
        and (lost := ops[int(call[1])]).kind is Kind.WRITE
        and sum(op.path == lost.path and op.kind is Kind.WRITE for op in ops[int(call[1]) : point]) > 2
    ]
    draw = random.Random(29)
    filled = set(draw.sample([each for each in holes if "commitlog" in _path(ops, each)], 4))
    wanted = {*draw.sample(torn, 8), *filled}
    states = 0
    for state in States(prepared.recording, WIDE):
        if (state.point, state.description) in wanted:
            promised = max(labels(prepared.recording, state), default=0)
            recovered = state.disk()
            reopen(recovered, prepared.config)
            again = prepare(going_on, state.point, disk=state.disk(), promised=promised)
            reference = contents(recovered)
            states += cut_power(again, NARROW, EFFORT, reference=reference).states
            if (state.point, state.description) in filled:
                # Each write to the log, lost alone: the zeros must not be missing once there is a record in the hole.
                writes = _log_writes(again.recording.ops)[:4]
                states += cut_power(again, EVERY, EFFORT, reference=reference, points=writes.__contains__).states
    return states


def _log_writes(ops: Sequence[Op]) -> list[int]:
    """Return the crash points right after the writes to the log."""
    return [at for at, op in enumerate(ops, 1) if op.kind is Kind.WRITE and "commitlog" in op.path]


def _path(ops: Sequence[Op], found: tuple[int, str]) -> str:
    return ops[int(found[1].split()[1])].path


def _fault(front: Front) -> int:
    """S6, reduced: some calls fail once, some writes are short, and the power is cut at the end."""
    healthy = faulted_driver(front=front)
    run(failing, healthy)
    history = healthy.faulty.history
    states = 0
    chosen = [at for at, call in enumerate(history, 1) if call in {"sync", "write"}][::2]
    faults = [Fault(error=Failure.SHORT if history[at - 1] == "write" else Failure.EIO, at=at) for at in chosen]
    faults += [  # once is not enough: the next sync of the directory has the name as well
        Fault(error=Failure.EIO, at=at, span=Span.STICKY, calls=("sync_dir",))
        for at in range(1, history.count("sync_dir") + 1)
    ]
    for fault in faults:
        driver = faulted_driver(front=front)
        driver.faulty.fault = fault
        driver.on_error = check_error
        run(failing, driver)
        states += len(judge_end(driver))
    return states


def _damage(front: Front) -> int:
    """S, reduced: records on the device are altered in a store that was not closed."""
    return damage_everywhere(prepare(failing, 18, front=front))


def _commit(front: Front) -> int:
    """S3, reduced: some crash points of batches."""
    states = 0
    for workload, seed, points in (
        (committed, 18, range(0, 10_000, 7)),
        (unflushed_batches, 18, range(0, 10_000, 8)),
        (unflushed_batches, 0, range(0, 200, 8)),  # messages that were not flushed, and then a batch
    ):
        prepared, issued = prepare_with(workload, seed, front)
        states += cut_batches(prepared, issued, FEW, points=points.__contains__).states
    return states


TRIALS: dict[Trial, Callable[[Front], int]] = {
    Trial.CUT: _cut,
    Trial.RECOVERY: _recovery,
    Trial.FAULT: _fault,
    Trial.DAMAGE: _damage,
    Trial.COMMIT: _commit,
}


CONTROLS = scale([Trial.DAMAGE], [*Trial], [*Trial])
"""Trials without a bug; in a quick run the tests of S1 to S6 stand for the others."""


@pytest.mark.scaled
@pytest.mark.parametrize("trial", CONTROLS, ids=lambda trial: trial.name)
def test_without_a_bug_nothing_is_seen(trial: Trial, report: Callable[[str, object], None]) -> None:
    states = TRIALS[trial](nothing)
    report(f"S18 control {trial.name}", f"{states} states")
    assert states >= 25


@pytest.mark.scaled(quick=4)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_seen(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant.plant is not None:
        mutant.plant(monkeypatch.setattr)
    with pytest.raises(Exception) as seen:
        TRIALS[mutant.trial](mutant.front or nothing)
    assert not isinstance(seen.value, (AttributeError, TypeError, NameError)), "the bug itself is broken"


def test_there_are_enough() -> None:
    assert planted.__name__  # importing it enters the bugs of the store
    assert len(MUTANTS) >= 30
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.trial for mutant in MUTANTS} == set(Trial)
