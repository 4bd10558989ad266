"""Processes that commit batches: some are killed, others take turns.

::

    test ── Process ──► committer: stage, in-flight marker, MARKED, commit, number, …       kill -9 after a while
    test ── go, to all at once ──► committer: stage, commit, pause of up to 50 ms, stage, … ──► of each: was it there?
"""

import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

from segmentlog.store import BatchId, Flush, Outgoing, StoreConfig
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.sink import commit_batch

from .batches import stage_messages
from .processes import fork_server

ROWS = 60
CONFIG = StoreConfig(segment_bytes=1 << 16, queue_segment_entries=200, index_slots=100, index_entries=400)
MARKED = -1


def stage_and_commit(path: str, version: int, attempt: str, flush: Flush, *, app: str = "q") -> bool:
    """Append one batch of two tasks over two queues, with a tag of its own; whether it was there."""
    config = replace(CONFIG, flush=flush)
    staged = []
    for task in range(2):
        rows = [
            Outgoing(topic="Orders", body=b"%d %d" % (task, row), queue_id=row % 2, tags=f"{app} {version}")
            for row in range(ROWS // 2)
        ]
        job = f"{app}-job{version}"
        staged.append(stage_messages(path, rows, config, job=job, partition=task, attempt=attempt))
    return commit_batch(path, config, BatchId(app, version, contiguous=True), staged).repeated


def kill_one(  # noqa: PLR0917 - one kill
    path: str, first: int, number: int, flush: Flush, reports: int, marked: bool, delay: float
) -> list[int]:
    """Let a process commit from batch ``first`` on, and kill it; return the numbers that it reported.

    It is killed ``delay`` seconds after so many reports, and after the next in-flight marker if ``marked``.
    """
    ours, theirs = fork_server().Pipe(duplex=False)
    process = fork_server().Process(target=_commit_on, args=(path, first, number, flush, theirs))
    process.start()
    theirs.close()
    heard = list[int]()
    while len(heard) - heard.count(MARKED) < reports or (marked and heard[-1:] != [MARKED]):
        heard.append(ours.recv())
    time.sleep(delay)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it ended by itself"
    with suppress(EOFError):
        while True:
            heard.append(ours.recv())
    return [each for each in heard if each != MARKED]


def _commit_on(path: str, first: int, number: int, flush: Flush, pipe: Connection) -> None:
    real = BatchRecords.write_mark

    def write_mark(self: BatchRecords, fs: WritableFileSystem, mark: BatchMark) -> None:
        real(self, fs, mark)
        if mark.in_flight:
            pipe.send(MARKED)

    BatchRecords.write_mark = write_mark  # type: ignore[method-assign]
    for version in range(first, 1 << 30):
        stage_and_commit(path, version, f"a{number}", flush)
        pipe.send(version)


def commit_together(path: str, apps: Sequence[str], batches: int, seed: int) -> list[list[bool]]:
    """Let a process for each application commit its batches, all at once; of each batch, whether it was there."""
    pipes = []
    for number, app in enumerate(apps):
        ours, theirs = fork_server().Pipe()
        fork_server().Process(target=_commit, args=(path, app, batches, seed + number, theirs)).start()
        theirs.close()
        pipes.append(ours)
    assert [pipe.recv() for pipe in pipes] == ["ready"] * len(pipes)
    for pipe in pipes:
        pipe.send("go")
    return [pipe.recv() for pipe in pipes]


def _commit(path: str, app: str, batches: int, seed: int, pipe: Connection) -> None:
    rng, repeated = random.Random(seed), []
    pipe.send("ready")
    pipe.recv()
    for version in range(batches):
        repeated.append(stage_and_commit(path, version, f"a{seed}", Flush.SYNC, app=app))
        time.sleep(rng.uniform(0, 0.05))
    pipe.send(repeated)
