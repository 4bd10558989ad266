"""Runs workloads, cuts the power everywhere, recovers, and judges.

::

    workload ──► recording ──► States ──► disk ──► Snapshot ──► MessageStore.open ──► promises D, P, F
                     │                              promise V           │ some: opened again (R), written on, read
                     └ Truth: the log if nothing is lost                └ some: its own recording ──► States ──► …

Everything follows from a seed. A promise that is broken is reported with the seed, the call and the state.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from segmentlog.store.config import StoreConfig
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.naming import segment_name
from segmentlog.store.write.message_store import MessageStore

from ..reading import read
from .driver import CONFIG, ROOT, TIME, Clock, Driver
from .memory_fs import MemoryFileSystem
from .promises import (
    INDEX,
    LOG,
    BrokenPromiseError,
    Seen,
    Truth,
    check_messages,
    contents,
    differences,
    seen_by_a_reader,
)
from .recorder import Recording, RecordingFileSystem
from .states import Breadth, CrashState, States, labels
from .workloads import Workload

LATER_MS = 7_200_000
"""Opened again so much later."""


@dataclass(slots=True)
class Tally:
    """Counts of a campaign; tests assert on them."""

    calls: int = 0  # calls, points: calls of the recordings, and crash points tried (one more than calls for each)
    points: int = 0
    # generated, states: states that came up, and those of them that were judged: no other before was the same disk
    # with the same promises
    generated: int = 0
    states: int = 0
    distinct: int = 0  # different disks among them
    after_promises: int = 0  # states before which something had been promised
    kept: int = 0  # kept, lost: states after which more than was promised was there, and less than had been written
    lost: int = 0
    # again, written_on, read: states after which the store was also opened once more, written on, read in full
    again: int = 0
    written_on: int = 0
    read: int = 0
    # states to which the file of 0 bytes was added that a halt leaves between creation and allocation of a segment
    halted: int = 0
    same: int = 0  # states within a recovery, after which it came to the same bytes

    def add(self, other: "Tally") -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Prepared:
    """A workload that was run to its end on a good disk."""

    name: str
    seed: int
    config: StoreConfig
    recording: Recording
    disk: MemoryFileSystem
    truth: Truth
    driver: Driver
    opened_at: int = 0

    @property
    def named(self) -> str:
        return f"workload {self.name}, seed {self.seed}"


def new_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_dir("/disk")
    return disk


def prepare(
    workload: Workload,
    seed: int = 0,
    *,
    disk: MemoryFileSystem | None = None,
    promised: int = 0,
    config: StoreConfig = CONFIG,
) -> Prepared:
    """Run a workload to its end, and look that the log says what was put."""
    recorder = RecordingFileSystem(disk if disk is not None else new_disk())
    if promised:
        recorder.mark(promised)
    driver = Driver(recorder, recorder, config=config, seed=seed)
    steps = workload(driver)
    next(steps)
    opened_at = len(recorder.recording.ops)
    for _ in steps:
        pass
    check_messages(recorder.disk, driver.issued)
    truth = Truth.of(recorder.disk, driver.config)
    return Prepared(workload.__name__, seed, driver.config, recorder.recording, recorder.disk, truth, driver, opened_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """Interval of the closer checks: every n-th state is opened again, written on, read; 0 for no state."""

    keys: int = 12
    again: int = 6
    written_on: int = 12
    read: int = 25
    halted: int = 5


Also = Callable[[MemoryFileSystem, Seen, int, int], None]
"""Further check of a recovered disk: messages of the reader before recovery, the log's end, the number of the state."""


def cut_power(
    prepared: Prepared,
    breadth: Breadth,
    effort: Effort | None = None,
    *,
    points: Callable[[int], bool] = lambda _: True,
    reference: Mapping[str, bytes] | None = None,
    also: Also | None = None,
) -> Tally:
    effort = effort or Effort()
    states = States(prepared.recording, breadth, points)
    tally = Tally(calls=len(prepared.recording.ops))
    written = -1
    written_at = -1
    # The same disk is read and recovered once: what is promised later is compared with what was found on it.
    # A reader of queues opens no index.
    seen: dict[object, Seen] = {}
    ends: dict[object, int] = {}
    for turn, state in enumerate(states):
        promised = max(labels(prepared.recording, state), default=0)
        with told(prepared.recording, state, prepared.named):
            within = reference if state.point <= prepared.opened_at else None
            halted = bool(effort.halted) and turn % effort.halted == 3
            visible, whole = (state.digest(INDEX), promised > 0, halted), (state.digest(), within is None, halted)
            disk = state.disk()
            if halted:
                tally.halted += add_empty_segment(disk, prepared.config)
            seen[visible] = look(prepared, disk, promised, seen.get(visible))
            if whole not in ends:
                ends[whole] = judge(prepared, disk, promised, effort=effort, turn=turn, tally=tally, reference=within)
                if also is not None:
                    also(disk, seen[visible], ends[whole], turn)
            if (end := ends[whole]) < promised:
                raise BrokenPromiseError("D", f"the log ends at {end}, up to {promised} was promised")
        if state.point != written_at:
            written, written_at = promised, state.point
        written = max(written, end)
        tally.after_promises += promised > 0
        tally.kept += end > promised
        tally.lost += end < written
    tally.points, tally.generated = states.count.points, states.count.generated
    tally.states, tally.distinct = states.count.states, len(states.count.digests)
    return tally


@contextmanager
def told(recording: Recording, state: CrashState, workload: str = "") -> Iterator[None]:
    try:
        yield
    except Exception as error:
        ops, point = recording.ops, state.point
        raise BrokenPromiseError(
            error.promise if isinstance(error, BrokenPromiseError) else "opening failed",
            f"{error!r} [{workload}, crash point {point} of {len(ops)}, after {ops[point - 1] if point else 'nothing'},"
            f" state: {state.description}]",
        ) from error


def add_empty_segment(disk: MemoryFileSystem, config: StoreConfig) -> bool:
    """Create the next segment without allocating it, if there is a log; return whether that was done."""
    bases = [int(each.name) for each in disk.list_dir(LOG)]
    if bases:
        disk.create(f"{LOG}/{segment_name(max(bases) + config.segment_bytes)}").close()
    return bool(bases)


def look(prepared: Prepared, disk: MemoryFileSystem, promised: int, seen: Seen | None = None) -> Seen:
    """Read one disk before it is recovered, unless its messages are known; return the messages of the reader."""
    prepared.truth.check_point(disk, promised)
    seen = seen_by_a_reader(disk, promised) if seen is None else seen
    prepared.truth.check_seen(seen, promised)
    return seen


def judge(
    prepared: Prepared,
    disk: MemoryFileSystem,
    promised: int,
    *,
    effort: Effort,
    turn: int,
    tally: Tally,
    reference: Mapping[str, bytes] | None = None,
) -> int:
    """Recover one disk and check it; return the end of its log."""
    store = reopen(disk, prepared.config)
    end = store.end_offset
    prepared.truth.check(store, disk, promised, every=effort.keys, turn=turn)
    if any(not each.size for each in disk.list_dir(LOG)):
        raise BrokenPromiseError("F", "a segment of 0 bytes is left, with which RocketMQ 4.9 does not start")
    if reference is not None:
        tally.same += 1
        # An index may be divided into other files; that it finds all keys was looked at before.
        changed = [path for path in differences(reference, contents(disk)) if not path.startswith(INDEX)]
        if changed:
            raise BrokenPromiseError("R", f"a power cut within recovery leaves another store: {changed}")
    if effort.again and turn % effort.again == 0:
        tally.again += 1
        before = contents(disk)
        store = reopen(disk, prepared.config)
        changed = differences(before, contents(disk))
        if changed or store.end_offset != end:
            raise BrokenPromiseError("R", f"opened once more, it is another store: {store.end_offset}, {changed}")
    if effort.read and turn % effort.read == 1:
        tally.read += 1
        read_all(store, prepared.truth, end)
    if effort.written_on and turn % effort.written_on == 2:
        tally.written_on += 1
        write_on(store, disk, prepared, end, turn)
    return end


def reopen(disk: WritableFileSystem, config: StoreConfig, later_ms: int = LATER_MS) -> MessageStore:
    clock = TIME.clock = Clock()
    clock.pass_time(later_ms)
    return MessageStore.open(ROOT, config, fs=disk, clock=clock)


def read_all(store: MessageStore, truth: Truth, end: int) -> None:
    rows = sum(1 for _ in read(store.snapshot(), columns=("body", "queueOffset", "physicalOffset")))
    there = sum(int((entries.ends <= end).sum()) for entries in truth.queues.values())
    if rows != there:
        raise BrokenPromiseError("F", f"a reader finds {rows} messages, the log has {there}")


def write_on(store: MessageStore, disk: MemoryFileSystem, prepared: Prepared, end: int, turn: int) -> None:
    writer = Driver(RecordingFileSystem(disk), disk, config=prepared.config, seed=1_000_000 + turn)
    writer.store = store
    if store.end_offset != end:
        raise BrokenPromiseError("R", f"the log ended at {end} and now at {store.end_offset}")
    writer.put(writer.message(60, topic="TopicA", queue_id=0))
    writer.put_batch([writer.message(250), writer.message(9)])
    writer.close()
    check_messages(disk, writer.issued)
    whole = Truth.of(disk, prepared.config)
    if not (whole.image[:end] == prepared.truth.image[:end]).all():
        raise BrokenPromiseError("D", f"writing on changed the log in front of {end}")
    again = reopen(disk, prepared.config, 2 * LATER_MS)
    whole.check(again, disk, max(e.physical_offset + e.size for e in writer.issued if e.physical_offset is not None))
