"""Starts processes that commit batches, fast: some are killed, others take turns.

::

    test ── first number, delay ──► nursery ── fork ──► committer: stage, in-flight marker, "marked", commit, number, …
         ◄── the numbers reported ────┴──── kill -9

    test ── go, to all at once ──► committer: stage, commit, pause of up to 50 ms, stage, …
         ◄── "repeated" or "appended", one line per batch ────┘

Run as a program: ``python -m support.commit_nursery PATH [APP BATCHES SEED]``. The nursery has imported everything and
has one thread, so that a committer is there some milliseconds after it is asked for.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from segmentlog.store import BatchId, Flush, Outgoing, StoreConfig
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.sink import Staging, commit_batch

from .batches import batch_of

ROWS = 60
CONFIG = StoreConfig(segment_bytes=1 << 16, queue_segment_entries=200, index_slots=100, index_entries=400)
MARKED = b"marked\n"
TESTS = Path(__file__).parent.parent


def stage_and_commit(path: str, version: int, attempt: str, flush: Flush, *, app: str = "q") -> bool:
    """Append one batch of two tasks over two queues, with a tag of its own; whether it was there."""
    config = replace(CONFIG, flush=flush)
    staged = []
    for task in range(2):
        with Staging.open(path, f"{app}-job{version}", task, attempt, config) as staging:
            rows = [
                Outgoing(topic="Orders", body=b"%d %d" % (task, row), queue_id=row % 2, tags=f"{app} {version}")
                for row in range(ROWS // 2)
            ]
            staging.add(batch_of(rows))
            staged.append(staging.finish())
    return commit_batch(path, config, BatchId(app, version, contiguous=True), staged).repeated


class CommitNursery:
    """The nursery, as the test has it; a context manager."""

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.commit_nursery", path],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kill_one(  # noqa: PLR0917 - the line to the nursery
        self, first: int, number: int, flush: Flush, reports: int, marked: bool, delay: float
    ) -> list[int]:
        """Let a process commit from batch ``first`` on, and kill it; return the numbers that it reported.

        It is killed ``delay`` seconds after so many reports, and after the next in-flight marker if ``marked``.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([first, number, flush.value, reports, marked, delay]) + "\n")
        self._process.stdin.flush()
        return list(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


def _commit_on(path: str, first: int, number: int, flush: Flush, pipe: int) -> None:
    real = BatchRecords.write_mark

    def write_mark(self: BatchRecords, fs: WritableFileSystem, mark: BatchMark) -> None:
        real(self, fs, mark)
        if mark.in_flight:
            os.write(pipe, MARKED)

    BatchRecords.write_mark = write_mark  # type: ignore[method-assign]
    for version in range(first, 1 << 30):
        stage_and_commit(path, version, f"a{number}", flush)
        os.write(pipe, b"%d\n" % version)


def _serve(path: str) -> None:
    for line in sys.stdin:
        first, number, flush, reports, marked, delay = json.loads(line)
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _commit_on(path, first, number, Flush(flush), into)
            finally:
                os._exit(1)
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            heard = list[bytes]()
            while len(heard) - heard.count(MARKED) < reports or (marked and heard[-1:] != [MARKED]):
                heard.append(pipe.readline())
                assert heard[-1], "it ended by itself"
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
            heard += pipe.readlines()
        died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert died == -signal.SIGKILL, "it ended by itself"
        sys.stdout.write(json.dumps([int(line) for line in heard if line != MARKED]) + "\n")
        sys.stdout.flush()


# Processes that commit to one store by turns


def commit_together(path: str, apps: Sequence[str], batches: int, seed: int) -> list[list[bool]]:
    """Let a process for each application commit its batches, all at once; of each batch, whether it was there."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "support.commit_nursery", path, app, str(batches), str(seed + number)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, app in enumerate(apps)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return [[word == "repeated" for word in words] for words in said]


def _commit(path: str, app: str, batches: int, seed: int) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    rng = random.Random(seed)
    for version in range(batches):
        repeated = stage_and_commit(path, version, f"a{seed}", Flush.SYNC, app=app)
        sys.stdout.write("repeated\n" if repeated else "appended\n")
        time.sleep(rng.uniform(0, 0.05))


if __name__ == "__main__":
    if sys.argv[2:]:
        _commit(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        _serve(sys.argv[1])
