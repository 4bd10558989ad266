"""Stores on a disk whose calls fail, and stores whose bytes are altered: what is left of them, and how it is judged.

::

    failing ──► MessageStore ──► FaultyFileSystem ──► RecordingFileSystem
                                              │ one Fault             └ power cut at the end ──► reopened on a good disk
                                              └ hits, history
"""

from dataclasses import dataclass

from segmentlog.store.config import OnDamage, StoreConfig
from segmentlog.store.errors import DamagedLogError, SegmentLogError
from segmentlog.store.format import durable_point
from segmentlog.store.write.message_store import MessageStore

from .campaign import Prepared, new_disk, reopen
from .driver import CONFIG, ROOT, Driver
from .faults import FaultyFileSystem
from .memory_fs import FileNode, MemoryFileSystem
from .promises import LOG, BrokenPromiseError, Truth, check_messages, check_order, seen_by_a_reader
from .recorder import RecordingFileSystem
from .states import Breadth, States, labels

ENDS = Breadth(exhaustive_bits=0, random_subsets=0, per_point=0)
"""Of the last crash point only what is always tried."""


@dataclass(slots=True)
class FaultedDriver(Driver):
    faulty: FaultyFileSystem = None  # type: ignore[assignment]


def faulted_driver(config: StoreConfig = CONFIG, seed: int = 0) -> FaultedDriver:
    recorder = RecordingFileSystem(new_disk())
    faulty = FaultyFileSystem(recorder)
    return FaultedDriver(recorder, faulty, config=config, seed=seed, faulty=faulty)


def check_error(error: Exception) -> None:
    """N: whatever a disk does, a store raises errors of its own."""
    if not isinstance(error, SegmentLogError):
        raise BrokenPromiseError("N", f"{error!r} is no error that a store raises") from error


def judge_faulted(disk: MemoryFileSystem, driver: Driver, promised: int) -> int:
    """Check a store whose disk had failed, on a disk that does not; return the end of its log."""
    seen = seen_by_a_reader(disk, promised)
    store = reopen(disk, driver.config)
    end = store.end_offset
    truth = Truth.of(disk, driver.config)
    truth.check_seen(seen, promised)
    truth.check(store, disk, promised)
    check_messages(disk, driver.issued, promised)
    check_order(disk, driver.issued, end)
    return end


def judge_end(driver: Driver, breadth: Breadth = ENDS) -> list[tuple[int, int]]:
    """Cut the power after the last call, and judge; return the log's end and the promises of each state."""
    recording = driver.recorder.recording
    found = []
    for state in States(recording, breadth, lambda point: point == len(recording.ops)):
        promised = max(labels(recording, state), default=0)
        found.append((judge_faulted(state.disk(), driver, promised), promised))
    return found


def damage_everywhere(prepared: Prepared, *, every: int = 37) -> int:
    """S: in stores that were not closed, alter each record that counts as on the device; return the number of refusals.

    An open does not read the log before the queues' durable point. There it must only not become shorter.
    """
    refused = 0
    points = range(40, len(prepared.recording.ops), every)
    for state in States(prepared.recording, ENDS, lambda point: point in points):
        if state.description != "all kept":
            continue
        durable = durable_point.decode(state.disk().read(f"{ROOT}/.segmentlog/durable", 0, durable_point.FILE_BYTES))
        if durable is None or durable.clean:
            continue
        for number, (start, stop) in enumerate(prepared.truth.records):
            if stop > durable.log:
                continue
            if start >= durable.queues:
                refused += _refused(prepared, state.disk(), start, (start + 4, (start + stop) // 2)[number % 2])
            elif number % 5 == 0:
                disk = state.disk()
                _alter(prepared, disk, start + 4)
                store = reopen(disk, prepared.config)
                if store.end_offset < durable.log:
                    raise BrokenPromiseError("S", f"damage at {start} made the log end at {store.end_offset}")
    return refused


def _refused(prepared: Prepared, disk: MemoryFileSystem, start: int, at: int) -> int:
    _alter(prepared, disk, at)
    before = disk.files()
    try:
        reopen(disk, prepared.config)
    except DamagedLogError as error:
        if error.offset != start or error.path is None:
            raise BrokenPromiseError(
                "S", f"damage at {start} was reported at {error.offset} in {error.path}"
            ) from error
    else:
        raise BrokenPromiseError("S", f"damage at {start} was passed over")
    if disk.files() != before:
        raise BrokenPromiseError("S", "a store that was refused was changed")
    store = MessageStore.open(ROOT, prepared.config, fs=disk, on_damage=OnDamage.CUT)
    if store.end_offset != start:
        raise BrokenPromiseError("S", f"cut at {store.end_offset}, the damage was at {start}")
    prepared.truth.check(store, disk, start)
    return 1


def _alter(prepared: Prepared, disk: MemoryFileSystem, at: int) -> None:
    base = at - at % prepared.config.segment_bytes
    node = disk.node(f"{LOG}/{base:020d}")
    assert isinstance(node, FileNode)
    node.own()[at - base] ^= 0x10
