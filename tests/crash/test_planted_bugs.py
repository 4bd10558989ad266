"""S18: bugs are planted in the store, one for each promise; the trial of the promise sees it.

Without a bug the tests of S1 to S6 are the same trials, with more states.

Bugs replace methods by name: a bug whose method is gone fails its test with an AttributeError, and needs another place.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from segmentlog.store.config import OnDamage
from segmentlog.store.entries import missing as crash_tail
from segmentlog.store.log import log_end
from segmentlog.store.log.appender import LogAppender
from segmentlog.store.log.batch_state import BatchRecords, Visibility
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.queues.writer import QueueWriter
from segmentlog.store.recovery import apply as repair
from segmentlog.store.recovery import decide as recovery
from segmentlog.store.recovery import open as recovery_open
from segmentlog.store.recovery.apply import Repair
from segmentlog.store.recovery.batch_marker import CutBatches
from segmentlog.store.write import batch_commit
from segmentlog.store.write.group_commit import Flusher
from segmentlog.store.write.put_path import AheadPiece, PutPath, QueueOffsets
from support.crash.batches import committed, prepare_with, schedule_pieces, unflushed_batches
from support.crash.batches import cut_power as cut_batches
from support.crash.campaign import Effort, cut_power, prepare, reopen
from support.crash.driver import CONFIG, LATE
from support.crash.faulted import check_error, damage_everywhere, faulted_driver, judge_end
from support.crash.faults import Failure, Fault, FaultyFile, Span
from support.crash.promises import contents
from support.crash.recorder import Kind, Op, RecordedFile, RecordingFileSystem
from support.crash.states import Breadth, States, labels
from support.crash.workloads import batches, even, failing, going_on, reopened, run, unflushed

pytestmark = pytest.mark.attack

BREADTH = Breadth(exhaustive_bits=0, random_subsets=3, per_point=3, seed=18)
FEW = Breadth(exhaustive_bits=0, random_subsets=1, per_point=2, seed=18)
NARROW = Breadth(exhaustive_bits=0, random_subsets=2, per_point=6, seed=18)
EVERY = Breadth(exhaustive_bits=0, random_subsets=0, seed=18)
WIDE = Breadth(exhaustive_bits=0, random_subsets=3, seed=18)
EFFORT = Effort(keys=4, again=15, written_on=0, read=0)


def _cut() -> None:
    """S1, reduced: some crash points of four workloads."""
    for workload, every, config in (
        (unflushed, 9, CONFIG),
        (failing, 2, CONFIG),
        (reopened, 9, CONFIG),
        (batches, 9, LATE),
    ):
        prepared = prepare(workload, 18, config=config)
        cut_power(prepared, BREADTH, EFFORT, points=lambda point, n=every: point % n == 0)


def _recovery() -> None:
    """S2, reduced: stores whose tail is torn, and the power is cut again while they are recovered."""
    prepared = prepare(even, 19)
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
    filled = set(draw.sample([each for each in holes if "commitlog" in _path(ops, each)], 2))
    wanted = {*draw.sample(torn, 3), *filled}
    points = {point for point, _ in wanted}
    for state in States(prepared.recording, WIDE, points.__contains__):
        if (state.point, state.description) in wanted:
            promised = max(labels(prepared.recording, state), default=0)
            recovered = state.disk()
            reopen(recovered, prepared.config)
            again = prepare(going_on, state.point, disk=state.disk(), promised=promised)
            reference = contents(recovered)
            cut_power(again, NARROW, EFFORT, reference=reference)
            if (state.point, state.description) in filled:
                # Each write to the log, lost alone: the zeros must not be missing once there is a record in the hole.
                writes = _log_writes(again.recording.ops)[:4]
                cut_power(again, EVERY, EFFORT, reference=reference, points=writes.__contains__)


def _log_writes(ops: Sequence[Op]) -> list[int]:
    return [at for at, op in enumerate(ops, 1) if op.kind is Kind.WRITE and "commitlog" in op.path]


def _path(ops: Sequence[Op], found: tuple[int, str]) -> str:
    return ops[int(found[1].split()[1])].path


def _fault() -> None:
    """S6, reduced: some calls fail once, some writes are short, and the power is cut at the end."""
    healthy = faulted_driver()
    run(failing, healthy)
    history = healthy.faulty.history
    chosen = [at for at, call in enumerate(history, 1) if call in {"sync", "write"}][::2]
    faults = [Fault(error=Failure.SHORT if history[at - 1] == "write" else Failure.EIO, at=at) for at in chosen]
    faults += [  # once is not enough: the next sync of the directory has the name as well
        Fault(error=Failure.EIO, at=at, span=Span.STICKY, calls=("sync_dir",))
        for at in range(1, history.count("sync_dir") + 1)
    ]
    for fault in faults:
        driver = faulted_driver()
        driver.faulty.fault = fault
        driver.on_error = check_error
        run(failing, driver)
        judge_end(driver)


def _damage() -> None:
    """S, reduced: records on the device are altered in a store that was not closed."""
    damage_everywhere(prepare(failing, 18))


def _commit() -> None:
    """S3, reduced: some crash points of batches."""
    for workload, seed, points in (
        (committed, 18, range(0, 10_000, 7)),
        (unflushed_batches, 18, range(0, 10_000, 8)),
        (unflushed_batches, 0, range(0, 200, 8)),  # messages that were not flushed, and then a batch
    ):
        prepared, issued = prepare_with(workload, seed)
        cut_batches(prepared, issued, FEW, points=points.__contains__)


def _pieces() -> None:
    """S3, reduced: the same while pieces are written in any order, and synced between each other."""
    with pytest.MonkeyPatch.context() as patched:
        schedule_pieces(patched, 18)
        prepared, issued = prepare_with(committed, 18)
    cut_batches(prepared, issued, FEW, points=range(0, 10_000, 5).__contains__)


Trial = Callable[[], object]
"""A fault that a store meets while it is written or opened."""
Patch = Callable[[Any, str, Any], None]
"""``patch(owner, name, replacement)``, undone after the test."""
BUGS: dict[str, tuple[Trial, Callable[[Patch], None]]] = {}
"""By the promise that each breaks."""


def breaks(trial: Trial) -> Callable[[Callable[[Patch], None]], None]:
    """Register a bug that breaks the promise it is named after, and the trial that sees it."""
    return lambda plant: BUGS.update({plant.__name__.strip("_"): (trial, plant)})


@breaks(_cut)
def _acknowledged_messages_are_durable(patch: Patch) -> None:
    patch(Flusher, "wait", lambda self, offset: None)


@breaks(_cut)
def _names_of_new_segments_are_durable(patch: Patch) -> None:
    real = RecordingFileSystem.sync_dir

    def sync_dir(self: RecordingFileSystem, path: str) -> None:
        if not path.endswith("/commitlog"):
            real(self, path)

    patch(RecordingFileSystem, "sync_dir", sync_dir)


@breaks(_cut)
def _the_durable_point_follows_the_sync(patch: Patch) -> None:
    real = Flusher.wait

    def wait(self: Flusher, offset: int) -> None:
        if self.flushed < offset:
            self._note(offset)
        real(self, offset)

    patch(Flusher, "wait", wait)


@breaks(_cut)
def _a_torn_record_is_cut(patch: Patch) -> None:
    patch(CommitLog, "check_crcs", lambda self, segment, records: None)
    patch(log_end, "ends_in_crc", lambda view, stops: np.ones(stops.size, np.bool_))


@breaks(_cut)
def _a_cut_tail_is_zeroed(patch: Patch) -> None:
    patch(Repair, "cut", lambda self, *arguments: 0)


@breaks(_cut)
def _queue_offsets_are_unique(patch: Patch) -> None:
    real = QueueOffsets.assign
    patch(QueueOffsets, "assign", lambda self, numbers, *rest: (real(self, numbers, *rest)[0], self.nexts[numbers]))


@breaks(_cut)
def _recovery_dispatches_the_rest_of_the_log(patch: Patch) -> None:
    patch(repair, "derive_segments", lambda *arguments: ())


@breaks(_cut)
def _recovery_removes_entries_beyond_the_log(patch: Patch) -> None:
    patch(QueueWriter, "_zero", lambda self, path, start, stop: None)


@breaks(_cut)
def _recovery_indexes_the_rest_of_the_log(patch: Patch) -> None:
    patch(repair, "put_keys", lambda *arguments: None)


@breaks(_cut)
def _readers_see_acknowledged_messages_before_recovery(patch: Patch) -> None:
    patch(crash_tail, "_end_below", lambda queue, bound, end, log: end)
    patch(crash_tail, "_begin_of_ours", lambda log, own: log.data_stop())


@breaks(_recovery)
def _a_zeroed_tail_is_durable(patch: Patch) -> None:
    real = Repair.cut

    def cut(self: Repair, *arguments: Any) -> int:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(RecordedFile, "sync", lambda self: None)
            return real(self, *arguments)

    patch(Repair, "cut", cut)


@breaks(_fault)
def _nothing_is_acknowledged_after_a_failed_sync(patch: Patch) -> None:
    real = FaultyFile.sync

    def sync(self: FaultyFile) -> None:
        try:
            real(self)
        except OSError:
            real(self)

    patch(FaultyFile, "sync", sync)


@breaks(_fault)
def _a_failed_append_is_not_in_the_log(patch: Patch) -> None:
    real = LogAppender.write

    def write(self: LogAppender, buffer: Any, runs: Any) -> None:
        try:
            real(self, buffer, runs)
        except OSError:
            run = runs[-1]
            self.end = run.end

    patch(LogAppender, "write", write)


@breaks(_damage)
def _damage_before_the_durable_point_is_refused(patch: Patch) -> None:
    real = recovery.decide
    patch(recovery_open, "decide", lambda state, durable, on_damage, *rest: real(state, None, OnDamage.CUT, *rest))


@breaks(_commit)
def _a_batch_is_whole_or_absent(patch: Patch) -> None:
    patch(BatchRecords, "write_mark", lambda self, fs, mark: None)


@breaks(_commit)
def _a_committed_batch_stays(patch: Patch) -> None:
    patch(BatchRecords, "pending", lambda self, mark: mark.in_flight)
    # else they count as cut off by a demotion, and leave the ledger as well: not one was promised yet
    patch(CutBatches, "forget", lambda self, fs, path: None)


@breaks(_commit)
def _a_batch_is_appended_once(patch: Patch) -> None:
    patch(batch_commit, "find_replay", lambda *arguments, **named: None)


@breaks(_commit)
def _the_ledger_is_durable(patch: Patch) -> None:
    patch(BatchRecords, "_write_ledger", lambda self, fs, ledger: None)


@breaks(_commit)
def _rows_are_durable_before_the_ledger(patch: Patch) -> None:
    patch(Flusher, "wait", lambda self, offset: None)


@breaks(_commit)
def _readers_see_no_batch_in_flight(patch: Patch) -> None:
    patch(Visibility, "hidden_from", lambda self: None)


@breaks(_pieces)
def _the_log_ends_after_pieces_that_are_written(patch: Patch) -> None:
    place, append = PutPath.place_ahead, PutPath.append_ahead
    early: list[AheadPiece] = []

    def place_ahead(self: PutPath, rows: Any, end: int) -> AheadPiece:
        piece = place(self, rows, end)
        if all(run.base == self._appender.active_base for run in piece.placed.runs):
            self._appender.advance(piece.placed.runs)
            early.append(piece)
        return piece

    def append_ahead(self: PutPath, piece: AheadPiece, request: Any) -> None:
        if any(each is piece for each in early):
            self._announce(request)
        else:
            append(self, piece, request)

    patch(PutPath, "place_ahead", place_ahead)
    patch(PutPath, "append_ahead", append_ahead)


@breaks(_pieces)
def _staged_rows_are_released_after_they_were_read(patch: Patch) -> None:
    real = batch_commit.take_staged

    def take_staged(fs: Any, *arguments: Any) -> Any:
        for chunk in real(fs, *arguments):
            if chunk.release is not None:
                chunk.release()
            yield chunk

    patch(batch_commit, "take_staged", take_staged)


@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("promise", BUGS)
def test_a_broken_promise_is_seen(promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trial, plant = BUGS[promise]
    plant(monkeypatch.setattr)
    with pytest.raises(Exception) as seen:
        trial()
    assert not isinstance(seen.value, (AttributeError, TypeError, NameError)), "the bug itself is broken"
