"""Cuts the power of real runs: what `real_worker` did, as `real_trace` has it, is judged in every state of its disk.

::

    real_worker ── strace ──► real_trace ──► Recording ──► States ──► disk ──► StoreReader ──► MessageStore.open
                                 │                            │
      the real directory ── the same bytes                    └ all kept: the process was killed, the machine was not

Each disk is judged as in `batches`. Where nothing was lost, as after ``kill -9``, everything is promised that was
acknowledged; where the power went, what was said to be on the device.
"""

import json
import pickle
import random
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from segmentlog.store.config import Services

from . import batches
from .batches import IssuedBatch, check_order, check_whole, keys_in_log
from .campaign import Effort, Prepared, Tally
from .driver import ROOT, Driver
from .promises import Truth, check_messages
from .real_calls import trace
from .real_trace import files_below, recording_of
from .real_worker import CONFIGS, Asked, Errand
from .recorder import Recording, RecordingFileSystem
from .states import Breadth, CrashState, labels

TESTS = Path(__file__).parent.parent.parent
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
