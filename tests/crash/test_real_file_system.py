"""S1 on the real file system: processes are traced, and the power is cut at the calls that they made.

Each writes with several threads, the real lock and the service threads; ``strace`` says what it asked of the operating
system. No two runs are the same, so a finding names the folder with the trace: `load` judges it again.

::

    real_worker ── strace ──► real_trace ──► Recording ──► States ──► disk ──► judged as in `batches`
                                 │                            │
      the real directory ── the same bytes                    └ all kept: the process was killed, the machine was not
"""

import json
import pickle
import random
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from segmentlog.store.config import Services
from support.crash import batches
from support.crash.batches import IssuedBatch, check_order, check_whole, keys_in_log
from support.crash.campaign import Effort, Prepared, Tally
from support.crash.driver import ROOT, Driver
from support.crash.promises import BrokenPromiseError, Truth, check_messages
from support.crash.real_trace import files_below, recording_of, trace
from support.crash.real_worker import BUGS, CONFIGS, Asked, Errand
from support.crash.recorder import Recording, RecordingFileSystem
from support.crash.states import Breadth, CrashState, labels
from support.scale import Report, sample, scale
from support.strace import WHY_NOT

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.attack,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there"),
]

TRIED = sample([*CONFIGS], 1)
SEEDS = scale(1, 1, 4)
RUNS_MAX = 10
"""Processes until the threads of one get into each other's way: how often they do depends on the machine."""
SHARE = scale(1, 1, 10) / 100
"""Of all calls, so many are the last one."""
BREADTH = Breadth(exhaustive_bits=2, random_subsets=2, torn=2, per_point=2, mixed=2, seed=1)
FEW = Breadth(exhaustive_bits=0, random_subsets=0, torn=1, per_point=1, mixed=0, seed=1)

TESTS = Path(__file__).parent.parent
EFFORT = Effort(keys=6, again=6, written_on=15, read=20, halted=0)


@dataclass(slots=True)
class RealRun:
    """A process that was traced to its end."""

    prepared: Prepared
    batches: list[IssuedBatch]

    @property
    def concurrent(self) -> int:
        """Number of syncs during which another thread changed what they were to make durable."""
        return sum(bool(op.spared) for op in self.prepared.recording.ops)


def run(errand: Errand) -> RealRun:
    """Run a process under the tracer, and take what it did from its trace."""
    folder = Path(errand.folder)
    (folder / "disk").mkdir(parents=True)
    command = [sys.executable, "-m", "support.crash.real_worker", json.dumps(asdict(errand))]
    trace(command, folder / "trace", cwd=TESTS)
    return load(errand)


def load(errand: Errand) -> RealRun:
    """Take from the folder of an errand what its process did, and make sure that the trace tells all of it."""
    folder = Path(errand.folder)
    lines = (folder / "trace").read_text(encoding="ascii").splitlines()
    recording, disk = recording_of(lines, folder / "disk", folder / "marks")
    if dict(files_below(folder / "disk")) != disk.files():
        raise AssertionError("the trace gives other files than are in the directory")
    asked: Asked = pickle.loads((folder / "issued").read_bytes())
    messages, issued_batches = asked
    config = replace(CONFIGS[errand.config], services=Services.ON_CALL)
    issued = sorted(messages, key=lambda each: each.physical_offset or 0)
    check_messages(disk, issued)
    check_order(disk, issued_batches)
    whole = check_whole(keys_in_log(disk), issued_batches, "log")
    assert whole == sum(bool(batch.keys) for batch in issued_batches)
    for kind in ("commitlog", "consumequeue/TopicA/0", "index"):
        assert len(disk.list_dir(f"{ROOT}/{kind}")) > 1, f"one file of {kind} was enough for all of it"
    driver = Driver(RecordingFileSystem(disk), disk, config=config, seed=errand.seed, issued=issued)
    name = f"{errand.config} in {errand.folder}"
    prepared = Prepared(name, errand.seed, config, recording, disk, Truth.of(disk, config), driver)
    return RealRun(prepared, issued_batches)


def run_concurrently(folder: Path, config: str, seed: int) -> RealRun:
    """Run processes until one synced a file that another thread changed meanwhile."""
    for number in range(RUNS_MAX):
        real = run(Errand(folder=str(folder / f"{seed}-{number}"), config=config, seed=seed + 1000 * number))
        if real.concurrent:
            return real
    raise AssertionError(f"threads did not get into each other's way in {RUNS_MAX} runs")


def cut_power(real: RealRun, breadth: Breadth, share: float) -> Tally:
    """Judge the states at some of the moments of a run, that share of them."""
    draw = random.Random(real.prepared.seed)
    chosen = [draw.random() < share for _ in range(len(real.prepared.recording.ops) + 1)]
    chosen[-1] = True
    return batches.cut_power(
        real.prepared, real.batches, breadth, EFFORT, points=chosen.__getitem__, promises=_promised
    )


def _promised(recording: Recording, state: CrashState) -> int:
    """Return up to where the log was acknowledged: by the device, or, after a kill, at all."""
    marks = labels(recording, state)
    return max((end for end, durable in marks if durable or state.description == "all kept"), default=0)


@pytest.mark.parametrize("config", TRIED)
def test_nothing_acknowledged_is_lost(config: str, tmp_path: Path, report: Report) -> None:
    tally = Tally()
    for seed in range(SEEDS):
        real = run_concurrently(tmp_path, config, seed)
        tally.add(cut_power(real, BREADTH, SHARE))
    report(f"S1 real, {config}", tally)
    assert tally.states >= scale(10, 50, 2_500)
    assert tally.distinct >= 0.9 * tally.states
    assert tally.after_promises >= 0.5 * tally.states
    assert min(tally.kept, tally.lost, tally.again) > 0


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_seen(bug: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenPromiseError):
        cut_power(run(Errand(folder=str(tmp_path / "run"), config="sync", seed=7, bug=bug)), FEW, share=0.15)
