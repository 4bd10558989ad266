"""Cuts the power of real runs: what `real_worker` did, as `real_trace` has it, is judged in every state of its disk.

::

    real_worker ── strace ──► real_trace ──► Recording ──► States ──► disk ──► StoreReader ──► MessageStore.open
                                 │                            │
      the real directory ── the same bytes                    └ all kept: the process was killed, the machine was not

Each disk is judged as in `campaign`: a reader looks first, then the store is opened. Of a batch that was committed the
reader sees all or nothing. Where nothing was lost, as after ``kill -9``, everything
is promised that was acknowledged; where the power went, what was said to be on the device.
"""

import json
import pickle
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from segmentlog.store.config import Services
from segmentlog.store.format.properties import UNIQ_KEY, Properties
from segmentlog.store.log.commit_log import CommitLog

from .batches import IssuedBatch, again, check_order, check_whole, keys_in_log, known, rows_seen
from .campaign import Effort, Prepared, Tally, judge, look, told
from .driver import ROOT, Driver
from .memory_fs import MemoryFileSystem
from .promises import LOG, Truth, check_messages
from .real_calls import trace
from .real_trace import files_below, recording_of
from .real_worker import CONFIGS, Asked, Errand
from .recorder import RecordingFileSystem
from .states import Breadth, CrashState, States, labels

TESTS = Path(__file__).parent.parent.parent
EFFORT = Effort(keys=6, again=6, written_on=15, read=20)
COMMITTED_AGAIN = 12
"""Every so manyth disk gets all batches once more."""
BATCHES_SEEN = 2
"""Of every so manyth disk a reader's rows are compared with the batches."""
ALL_KEPT = "all kept"


@dataclass(slots=True)
class RealTally(Tally):
    runs: int = 0  # processes that were traced
    concurrent: int = 0  # syncs during which another thread changed what they were to make durable
    acknowledged: int = 0  # messages that had been acknowledged, and were found: counted in each state
    killed: int = 0  # states in which the process had ended and nothing else
    mixed: int = 0  # states with sectors that neither the last sync nor the last write left like this
    seen: int = 0  # states in which a reader was asked for batches


@dataclass(slots=True)
class RealRun:
    """A process that was traced to its end."""

    prepared: Prepared
    batches: list[IssuedBatch]
    ends: list[tuple[int, str]]  # for each message where its record ends, and its key; sorted


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
    messages, batches = asked
    config = replace(CONFIGS[errand.config], services=Services.ON_CALL)
    issued = sorted(messages, key=lambda each: each.physical_offset or 0)
    check_messages(disk, issued)
    check_order(disk, batches)
    assert check_whole(keys_in_log(disk), batches, "log") == sum(bool(batch.keys) for batch in batches)
    for kind in ("commitlog", "consumequeue/TopicA/0", "index"):
        assert len(disk.list_dir(f"{ROOT}/{kind}")) > 1, f"one file of {kind} was enough for all of it"
    driver = Driver(RecordingFileSystem(disk), disk, config=config, seed=errand.seed, issued=issued)
    name = f"{errand.config} in {errand.folder}"
    prepared = Prepared(name, errand.seed, config, recording, disk, Truth.of(disk, config), driver)
    return RealRun(prepared, batches, sorted(_ends(disk)))


def _ends(disk: MemoryFileSystem) -> Iterator[tuple[int, str]]:
    log = CommitLog(disk, [LOG])
    for found in log.walk(0, log.stop):
        if len(found.records):
            stops = found.segment.base + found.records.positions + found.records.field("total_size")
            yield from zip(stops.tolist(), Properties(found.records).column(UNIQ_KEY).to_pylist(), strict=True)


def cut_power(real: RealRun, breadth: Breadth, share: float) -> RealTally:
    """Judge the states at some of the moments of a run, that share of them."""
    prepared = real.prepared
    draw = random.Random(prepared.seed)
    chosen = [draw.random() < share for _ in range(len(prepared.recording.ops) + 1)]
    chosen[-1] = True
    states = States(prepared.recording, breadth, chosen.__getitem__)
    tally = RealTally(runs=1, calls=len(prepared.recording.ops))
    tally.concurrent = sum(bool(op.spared) for op in prepared.recording.ops)
    written = written_at = -1
    for turn, state in enumerate(states):
        promised, acknowledged = _promised(prepared, state)
        with told(prepared.recording, state, prepared.named):
            disk = state.disk()
            if turn % BATCHES_SEEN == 0 and disk.list_dir(LOG):
                check_whole(rows_seen(disk), real.batches, "reader")
                tally.seen += 1
            look(prepared, disk, promised)
            end = judge(prepared, disk, promised, effort=EFFORT, turn=turn, tally=tally)
            there = check_whole([key for stop, key in real.ends if stop <= end], real.batches, "log")
            if turn % COMMITTED_AGAIN == 3:
                again(prepared, known(real.batches), disk, there)
        written = end if state.point != written_at else max(written, end)
        written_at = state.point
        tally.acknowledged += acknowledged
        tally.after_promises += promised > 0
        tally.killed += state.description == ALL_KEPT
        tally.mixed += "versions of sectors" in state.description
        tally.kept += end > promised
        tally.lost += end < written
    tally.points, tally.generated = states.count.points, states.count.generated
    tally.states, tally.distinct = states.count.states, len(states.count.digests)
    return tally


def _promised(prepared: Prepared, state: CrashState) -> tuple[int, int]:
    """Up to where the log was acknowledged, and how many messages: by the device, or, after a kill, at all."""
    is_killed = state.description == ALL_KEPT
    marks = [mark for mark in labels(prepared.recording, state) if mark[2] or is_killed]
    return max((end for end, _, _ in marks), default=0), sum(messages for _, messages, _ in marks)
