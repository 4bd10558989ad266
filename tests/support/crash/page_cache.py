"""Batches with ``Flush.KERNEL``: the process may be killed, or the power go.

::

    killed     the page cache stays, the same kernel runs     every committed batch is there
    power cut  any of the unsynced bytes, another kernel      of each batch all rows or none, the last ones first;
                                                              none that the ledger names and the log lacks
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from segmentlog.store import BatchId, NotAStoreError
from segmentlog.store.config import Flush, StoreConfig

from .batches import IssuedBatch, again, check_order, check_whole, issue, keys_in_log, known, rows_seen
from .campaign import Effort, Front, Prepared, Tally, judge, look, new_disk, nothing, prepare, reopen, told
from .driver import CONFIG, Driver
from .memory_fs import MemoryFileSystem
from .promises import BrokenPromiseError
from .states import Breadth, States, labels

BOOT_ID = "/proc/sys/kernel/random/boot_id"
EFFORT = Effort(again=12, written_on=0, read=60)


def booted_disk() -> MemoryFileSystem:
    """An empty disk on which the running kernel is named."""
    disk = new_disk()
    for directory in ("/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/random"):
        disk.make_dir(directory)
    disk.create(BOOT_ID).write(0, b"7d1c0a54-0000-4000-8000-000000000001")
    return disk


def reboot(disk: MemoryFileSystem) -> MemoryFileSystem:
    """Let another kernel run."""
    disk.open(BOOT_ID).write(0, b"7d1c0a54-0000-4000-8000-000000000002")
    return disk


def prepare_kept(
    seed: int, config: StoreConfig = CONFIG, front: Front = nothing
) -> tuple[Prepared, list[IssuedBatch], list[int]]:
    """Run sessions in the page cache, and a durable one; return batches, and the calls before each commit returned."""
    batches: list[IssuedBatch] = []
    done: list[int] = []

    def commit(driver: Driver, batch_id: BatchId, *rows: int) -> None:
        batches.append(issue(driver, batch_id, *rows))
        done.append(len(driver.recorder.recording.ops))

    def work(driver: Driver) -> Iterator[None]:
        for number, flush in enumerate([Flush.KERNEL] * 5 + [Flush.SYNC] + [Flush.KERNEL] * 2):
            driver.config = replace(config, flush=flush)
            driver.open()
            yield
            commit(driver, BatchId("query", number, contiguous=True), *((9, 4), (20, 9), (40,))[number % 3])
            yield
            if number == 1:
                driver.put(driver.message(300))
                commit(driver, BatchId(), 5, 5)
                commit(driver, BatchId(), 7)
            if number == 3:
                commit(driver, BatchId("job", 7), 12)
            yield
            driver.close()
            yield

    prepared = prepare(work, seed, disk=booted_disk(), front=front, config=config)
    check_order(prepared.disk, batches)
    assert check_whole(keys_in_log(prepared.disk), batches, "log") == len(batches)
    return prepared, batches, done


def kill_or_cut_power(
    prepared: Prepared,
    batches: list[IssuedBatch],
    done: list[int],
    breadth: Breadth,
    points: Callable[[int], bool] = lambda _: True,
) -> tuple[Tally, int]:
    """Judge every state of a recording; return the counts, and in how many of them the process was killed."""
    tally, killed = Tally(calls=len(prepared.recording.ops)), 0
    for turn, state in enumerate(States(prepared.recording, breadth, points)):
        promised = max(labels(prepared.recording, state), default=0)
        with told(prepared, state):
            if state.description == "all kept":
                _judge_killed(prepared, state.disk(), batches, sum(at <= state.point for at in done))
                killed += 1
            disk = reboot(state.disk())
            look(prepared, disk, promised)
            tally.kept += check_whole(_rows_seen(disk), batches, "reader") > 0
            end = judge(prepared, disk, promised, effort=EFFORT, turn=turn, tally=tally)
            tally.lost += end < prepared.truth.image.size
            there = check_whole(keys_in_log(disk), batches, "log")
            if turn % 5 == 0:
                again(prepared, known(batches), disk, there)
        tally.states += 1
        tally.after_promises += promised > 0
    return tally, killed


def _judge_killed(prepared: Prepared, disk: MemoryFileSystem, batches: list[IssuedBatch], committed: int) -> None:
    """Check that a store whose process was killed has all committed batches, before it is opened again and after."""
    for where in ("reader", "log"):
        keys = _rows_seen(disk) if where == "reader" else keys_in_log(disk)
        if check_whole(keys, batches, where) < committed:
            raise BrokenPromiseError("B", f"{where}: of {committed} batches some are lost, and the machine runs on")
        if where == "reader":
            reopen(disk, prepared.config)


def _rows_seen(disk: MemoryFileSystem) -> list[str]:
    try:
        return rows_seen(disk)
    except NotAStoreError:
        return []  # the power went before there was a log
