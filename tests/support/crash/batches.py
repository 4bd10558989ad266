"""S3: batches while the power may go; each is there as a whole, or not at all, and once.

::

    Issue     stage in several tasks ──► commit ──► promised
    judge     reader of the disk as it is:    of each batch all rows or none                          B
              MessageStore.open:              the log ends before a batch or after it                B
              all batches committed again:    what was there is not appended, what was not is         B

A batch is known by the keys of its messages: no two messages have the same.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pytest

from segmentlog.store import BatchId, CommittedBatch, MessageStore, Outgoing, Snapshot
from segmentlog.store.config import Flush, StoreConfig
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.properties import UNIQ_KEY, Properties
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.sink import Staged, Staging
from segmentlog.store.write import batch_commit, staging
from segmentlog.store.write.batch_commit import CommitPipeline

from ..batches import batch_of
from ..reading import read
from ..scale import scale
from . import campaign
from .campaign import Effort, Prepared, Tally, prepare, reopen
from .driver import CONFIG, ROOT, Driver
from .memory_fs import MemoryFileSystem
from .promises import LOG, BrokenPromiseError, Seen
from .states import CUTS, Breadth

BREADTH = Breadth(
    exhaustive_bits=scale(2, 2, 10),
    random_subsets=scale(1, 1, 32),
    torn=scale(1, 1, CUTS + 3),
    per_point=scale(1, 1, 400),
    seed=3,
)
"""States of each power cut of S3."""

SYNC_BYTES = 2000
"""Bytes of a batch after which `schedule_pieces` syncs: a few pieces."""

BatchWorkload = Callable[[Driver, "list[IssuedBatch]"], Iterator[None]]
"""Does its work, notes the batches it commits, and yields between any two calls."""


@dataclass(frozen=True, slots=True)
class IssuedBatch:
    """A batch that was asked to be committed: what each task staged of it."""

    batch_id: BatchId
    tasks: tuple[tuple[Outgoing, ...], ...]

    @property
    def keys(self) -> list[str]:
        return [message.uniq_key or "" for task in self.tasks for message in task]


def stage(fs: WritableFileSystem, config: StoreConfig, batch: IssuedBatch, attempt: str) -> list[Staged]:
    staged = []
    for number, task in enumerate(batch.tasks):
        with Staging.open(ROOT, "job", number, attempt, config, fs=fs) as rows:
            half = len(task) // 2
            for messages in (task[:half], task[half:]):
                if messages:
                    rows.add(batch_of(list(messages)))
            staged.append(rows.finish())
    return staged


def commit(store: MessageStore, fs: WritableFileSystem, batch: IssuedBatch, attempt: str) -> CommittedBatch:
    return store.commit_batch(batch.batch_id, stage(fs, store.config, batch, attempt), topics={"TopicA": 4})


def issue(driver: Driver, batch_id: BatchId, *rows: int) -> IssuedBatch:
    """Commit a batch of new messages, so many in each task, and promise what it promises."""
    tasks = tuple(tuple(driver.message() for _ in range(count)) for count in rows)
    batch = IssuedBatch(batch_id, tasks)
    repeat(driver, batch)
    return batch


def repeat(driver: Driver, batch: IssuedBatch) -> None:
    """Commit a batch, be it for the first time or not."""
    assert driver.store is not None
    driver.serial += 1
    committed = commit(driver.store, driver.fs, batch, f"a{driver.serial}")
    driver.promise(committed.stop)


def committed(driver: Driver, batches: list[IssuedBatch]) -> Iterator[None]:
    """Batches of a query and of jobs, single messages between them, over several segments."""
    driver.open()
    yield
    for number, rows in enumerate([(3, 2), (20, 9), (0, 1), (40, 40, 3), (0,), (7,)]):
        batches.append(issue(driver, BatchId("query", number, contiguous=True), *rows))
        yield
        if number % 2:
            driver.put(driver.message())
            yield
        if number == 2:
            repeat(driver, batches[-1])
            yield
            driver.reopen()
            yield
        if number == 3:
            batches.append(issue(driver, BatchId(), 5, 5))
            yield
            driver.tick(60)
            yield
    batches.append(issue(driver, BatchId("job", 7), 12))
    yield
    driver.close()


def unflushed_batches(driver: Driver, batches: list[IssuedBatch]) -> Iterator[None]:
    driver.config = replace(driver.config, flush=Flush.ASYNC, flush_interval_ms=1 << 40)
    driver.open()
    yield
    for number in range(4):
        for _ in range(3):
            driver.put(driver.message(300))
            yield
        batches.append(issue(driver, BatchId("query", number), 6, 30))
        yield
        driver.tick(500)
        yield
    driver.close()


WORKLOADS: dict[str, BatchWorkload] = {work.__name__: work for work in (committed, unflushed_batches)}


# Judging


def rows_seen(disk: MemoryFileSystem) -> list[str]:
    """Keys of all messages that a reader of a disk sees before recovery."""
    return [row["uniqKey"] for row in read(Snapshot.open(ROOT, fs=disk), columns=("uniqKey",), check_crc=False)]


def keys_in_log(disk: MemoryFileSystem) -> list[str]:
    log = CommitLog(disk, [LOG])
    found = log.walk(0, log.stop)
    return [key for each in found if len(each.records) for key in Properties(each.records).column(UNIQ_KEY).to_pylist()]


def check_whole(keys: list[str], batches: list[IssuedBatch], where: str) -> int:
    """B: all rows of a batch or none, and each once; return the number of batches."""
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    there = 0
    for batch in batches:
        found = [counts.get(key, 0) for key in batch.keys]
        if found and (min(found) != max(found) or max(found) > 1):
            raise BrokenPromiseError("B", f"{where}: {batch.batch_id} has {sum(found)} rows of {len(found)}")
        there += bool(found) and found[0] == 1
    return there


def check_order(disk: MemoryFileSystem, batches: list[IssuedBatch]) -> None:
    """P: the rows of a batch are adjacent, in the order of the tasks."""
    places = {key: at for at, key in enumerate(keys_in_log(disk))}
    for batch in batches:
        found = [places[key] for key in batch.keys if key in places]
        if found and found != list(range(found[0], found[0] + len(batch.keys))):
            raise BrokenPromiseError("P", f"the rows of {batch.batch_id} are not in their order")


# The power goes

EFFORT = Effort(again=12, written_on=0, read=60, halted=0)


def schedule_pieces(patched: pytest.MonkeyPatch, seed: int) -> None:
    """Let commits do in one thread what their threads may do: write pieces in any order, and sync between them."""
    patched.setattr(CommitPipeline, "written", _written_in_any_order(seed))
    patched.setattr(CommitPipeline, "sync", lambda _, work: work())
    patched.setattr(batch_commit, "_SYNC_BYTES", SYNC_BYTES)
    patched.setattr(staging, "RELEASE_BYTES", 1)


def _written_in_any_order(seed: int) -> Callable[..., Iterator[tuple[Any, Any]]]:
    """Stand-in for `CommitPipeline.written`: the order in which threads might write pieces, the same in each run."""
    draw = random.Random(seed)

    def written(_: object, items: Iterable[Any], write: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
        coming, waiting = iter(items), deque[Any]()
        results: dict[int, Any] = {}  # of pieces that are written and wait for their turn
        while True:
            waiting.extend(islice(coming, max(0, draw.randint(2, 4) - len(waiting))))
            if not waiting:
                return
            unwritten = [each for each in waiting if id(each) not in results]
            some = draw.sample(unwritten, draw.randint(0, len(unwritten)))
            first = waiting.popleft()
            if id(first) not in results and all(each is not first for each in some):
                some.append(first)
            results |= {id(each): write(each) for each in some}
            yield first, results.pop(id(first))

    return written


def prepare_with(
    workload: BatchWorkload, seed: int, config: StoreConfig = CONFIG
) -> tuple[Prepared, list[IssuedBatch]]:
    batches: list[IssuedBatch] = []

    def work(driver: Driver) -> Iterator[None]:
        return workload(driver, batches)

    prepared = prepare(work, seed, config=config)
    check_order(prepared.disk, batches)
    assert check_whole(keys_in_log(prepared.disk), batches, "log") == sum(bool(batch.keys) for batch in batches)
    return prepared, batches


def cut_power(prepared: Prepared, batches: list[IssuedBatch], breadth: Breadth, points: Callable[[int], bool]) -> Tally:
    key_of = dict(zip((start for start, _ in prepared.truth.records), keys_in_log(prepared.disk), strict=True))

    def check_batches(disk: MemoryFileSystem, seen: Seen, end: int, turn: int) -> None:
        rows = [key_of[place] for _, physical in seen.values() for place in physical.tolist()]
        check_whole(rows, batches, "reader")
        # the log was compared with the undamaged one up to its end
        there = check_whole([key for place, key in key_of.items() if place < end], batches, "log")
        if turn % 9 == 0:
            again(prepared, [batch for batch in batches if batch.batch_id.app is not None], disk, there)

    return campaign.cut_power(prepared, breadth, EFFORT, also=check_batches, points=points)


def again(prepared: Prepared, batches: list[IssuedBatch], disk: MemoryFileSystem, there: int) -> None:
    """Commit all of them again, as a driver does that lost the result of a commit."""
    store = reopen(disk, prepared.config)
    before = check_whole(keys_in_log(disk), batches, "log")
    appended = 0
    for number, batch in enumerate(batches):
        repeated = commit(store, disk, batch, f"again{number}").repeated
        appended += bool(batch.keys) and not repeated
    store.close()
    whole = check_whole(keys_in_log(disk), batches, "repeated")
    if whole != sum(bool(batch.keys) for batch in batches) or before + appended != whole or there < before:
        raise BrokenPromiseError("B", f"{before} batches were there, {appended} were appended, {whole} are there now")
    if check_whole(rows_seen(disk), batches, "reader") != whole:
        raise BrokenPromiseError("B", "a reader does not see all batches")
