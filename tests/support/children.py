"""Processes of tests that are killed, take turns, or come too late; those that hold a lock are in `lock_holders`.

::

    test ── killed(work) ── fork server ──► work ── reports ──┐     kill -9, a while after a report that is waited for
         ◄────────────────────────────────────────────────────┘

What writes messages and what commits batches are two kinds of work of one harness.
"""

import os
import random
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from segmentlog.store import BatchId, Flush, MessageStore, Outgoing, Services, StoreConfig
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.sink import Staging, commit_batch, stored_config

from .batches import batch_of, stage_messages
from .processes import fork_server
from .written_stores import LINE_BYTES, SMALL, Heard, Pipe, put_some

MUST_END_SECONDS = 300


def killed(work: Callable[..., None], *arguments: object, until: Callable[[bytes], bool], delay: float) -> bytes:
    """Run ``work(descriptor, …)`` in a process, and kill it ``delay`` seconds after ``until`` holds of what it wrote.

    Return all that it wrote to the descriptor; fail if it ended by itself.
    """
    said, saying = fork_server().Pipe(duplex=False)
    failed, failing = fork_server().Pipe(duplex=False)
    with said, failed:
        process = fork_server().Process(target=_work, args=(work, saying, failing, arguments))
        process.start()
        saying.close()
        failing.close()
        heard = bytearray()
        deadline, is_armed, is_killed = time.monotonic() + MUST_END_SECONDS, False, False
        while True:
            if not is_armed and until(bytes(heard)):
                deadline, is_armed = time.monotonic() + delay, True
            ready, _, _ = select.select([said], [], [], None if is_killed else max(0.0, deadline - time.monotonic()))
            if not is_killed and time.monotonic() >= deadline:
                process.kill()
                is_killed = True
            if ready:
                piece = os.read(said.fileno(), 1 << 16)
                if not piece:
                    break
                heard += piece
        process.join()
        error = ""
        with suppress(EOFError):
            error = failed.recv()
    assert process.exitcode == -signal.SIGKILL, f"it ended by itself, with {process.exitcode}: {error}"
    return bytes(heard)


def _work(work: Callable[..., None], saying: Connection, failing: Connection, arguments: Sequence[object]) -> None:
    try:
        work(saying.fileno(), *arguments)
    except BaseException:  # noqa: BLE001 - told to the test
        failing.send(traceback.format_exc())


# Messages


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    store: str
    seed: int
    writer: int  # number of its first thread; each further thread has the next one
    threads: int = 1
    kill_after: float = 0  # seconds until it is killed, from its n-th report
    kill_lines: int = 0  # how much that is: lines of `Pipe`
    batches: bool = True
    flush: str = "SYNC"
    services: str = "ON_CALL"


def write_until_killed(errand: Errand) -> Heard:
    """Let a process write a store, and kill it; return what it reported."""
    lines = errand.kill_lines * LINE_BYTES
    return Heard.of(killed(_write, errand, until=lambda said: len(said) >= lines, delay=errand.kill_after))


def _write(said: int, errand: Errand) -> None:
    config = replace(SMALL, flush=Flush[errand.flush], services=Services[errand.services])
    store = MessageStore.open(errand.store, config)
    with ThreadPoolExecutor(errand.threads) as pool:
        list(pool.map(lambda number: _put(errand, store, Pipe(said), errand.writer + number), range(errand.threads)))


def _put(errand: Errand, store: MessageStore, pipe: Pipe, writer: int) -> None:
    rng = random.Random(f"{errand.seed} {writer} rest")
    serial = 0
    while True:
        serial = put_some(store, pipe, errand.seed, writer, first=serial, batches=errand.batches)
        if rng.random() < 0.05:
            store.flush()


# Batches

ROWS = 60
CONFIG = StoreConfig(segment_bytes=1 << 16, queue_segment_entries=200, index_slots=100, index_entries=400)
_MARKED = b"marked"


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


def commit_until_killed(  # noqa: PLR0917 - one kill
    path: str, first: int, number: int, flush: Flush, reports: int, marked: bool, delay: float
) -> list[int]:
    """Let a process commit from batch ``first`` on, and kill it; return the numbers that it reported.

    It is killed ``delay`` seconds after so many reports, and after the next in-flight marker if ``marked``.
    """

    def is_due(said: bytes) -> bool:
        lines = said.split()
        return len(lines) - lines.count(_MARKED) >= reports and (not marked or lines[-1:] == [_MARKED])

    said = killed(_commit_on, path, first, number, flush, until=is_due, delay=delay)
    return [int(line) for line in said.split() if line != _MARKED]


def _commit_on(said: int, path: str, first: int, number: int, flush: Flush) -> None:
    real = BatchRecords.write_mark

    def write_mark(self: BatchRecords, fs: WritableFileSystem, mark: BatchMark) -> None:
        real(self, fs, mark)
        if mark.in_flight:
            os.write(said, _MARKED + b"\n")

    BatchRecords.write_mark = write_mark  # type: ignore[method-assign]
    for version in range(first, 1 << 30):
        stage_and_commit(path, version, f"a{number}", flush)
        os.write(said, b"%d\n" % version)


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


# A task that comes too late


def start_zombie(path: str, job: str, partition: int, faults: Path) -> None:
    """Start an attempt of a task that Spark considers dead: it stages its rows after the batch was committed.

    It begins once there is ``late`` in the folder of the faults, and makes ``late.done`` there.
    """
    program = f"from support.children import _rise; _rise({path!r}, {job!r}, {partition}, {str(faults)!r})"
    subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, start_new_session=True)


def _rise(path: str, job: str, partition: int, folder: str) -> None:
    faults, until = Path(folder), time.monotonic() + 120
    while not (faults / "late").exists():
        if time.monotonic() > until:
            return
        time.sleep(0.01)
    with Staging.open(path, job, partition, "zombie", stored_config(path, StoreConfig())) as staging:
        staging.add(batch_of([Outgoing(topic="Rows", body=b"from a zombie") for _ in range(10)]))
        staging.finish()
    (faults / "late.done").touch()
