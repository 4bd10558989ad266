"""Starts processes that write a store, fast, and lets them be killed.

::

    test ── a line of JSON ──► nursery ── fork ──► writer ── acknowledgements ──┐      pipe
         ◄── JSON, then bytes ────┴──── kill -9 after a while ◄─────────────────┘

Run as a program: ``python -m support.writer_nursery``. It has imported everything, including modules of a first
append, and has one thread. So a writer starts within some milliseconds, and is killed when its time has come.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from segmentlog.store import Flush, MessageStore, Services, StoreConfig

from .written_stores import LINE_BYTES, SMALL, Heard, Pipe, put_some

TESTS = Path(__file__).parent.parent
MUST_END_SECONDS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    store: str
    seed: int
    writer: int  # number of its first thread; each further thread has the next one
    threads: int
    kill_after: float  # seconds from its report ``kill_lines`` until it is killed
    kill_lines: int  # lines of `Pipe`
    batches: bool
    flush: str
    services: str

    @property
    def config(self) -> StoreConfig:
        return replace(SMALL, flush=Flush[self.flush], services=Services[self.services])


@dataclass(slots=True)
class Outcome:
    status: int  # as from ``os.waitstatus_to_exitcode``: below 0 for a signal
    heard: Heard
    error: str = ""  # what it raised, if it raised


class Nursery:
    """The program, as a test sees it; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.writer_nursery"],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def send(self, errand: Errand) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {name: getattr(errand, name) for name in Errand.__slots__}
        self._process.stdin.write(json.dumps(given).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery died"
        head = json.loads(line)
        said = self._process.stdout.read(head["said"])
        return Outcome(head["status"], Heard.of(said), head["error"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


# In the nursery


def main() -> None:
    with (
        tempfile.TemporaryFile() as said_to,
        tempfile.TemporaryDirectory() as folder,
        MessageStore.open(os.path.join(folder, "store"), SMALL) as store,
    ):
        for serial in range(2):
            put_some(store, Pipe(said_to.fileno()), 0, 0, first=serial, batches=True)
    for line in sys.stdin.buffer:
        head, said = _do(Errand(**json.loads(line)))
        sys.stdout.buffer.write(json.dumps(head | {"said": len(said)}).encode() + b"\n" + said)
        sys.stdout.buffer.flush()


def _do(errand: Errand) -> tuple[dict[str, Any], bytes]:
    said_end, saying_end = os.pipe()
    report_end, reporting_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said_end)
        os.close(report_end)
        _write(errand, Pipe(saying_end), reporting_end)
    os.close(saying_end)
    os.close(reporting_end)
    said = _listen(said_end, child, errand)
    with os.fdopen(report_end, "rb") as report:
        error = report.read().decode()
    _, status = os.waitpid(child, 0)
    os.close(said_end)
    return {"error": error, "status": os.waitstatus_to_exitcode(status)}, said


def _listen(fd: int, child: int, errand: Errand) -> bytes:
    """Take in what a writer says until it is no more."""
    said = bytearray()
    deadline = time.monotonic() + MUST_END_SECONDS
    armed = killed = False
    while True:
        if not armed and len(said) >= errand.kill_lines * LINE_BYTES:
            armed, deadline = True, time.monotonic() + errand.kill_after
        ready, _, _ = select.select([fd], [], [], None if killed else max(0.0, deadline - time.monotonic()))
        if not killed and time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            killed = True
        if ready:
            piece = os.read(fd, 1 << 16)
            if not piece:
                return bytes(said)
            said += piece


# In a writer


def _write(errand: Errand, pipe: Pipe, reporting_end: int) -> NoReturn:
    try:
        _put_all(errand, pipe)
    except BaseException:  # noqa: BLE001 - a forked child must not run its parent's handlers
        os.write(reporting_end, traceback.format_exc().encode())
    os._exit(4)


def _put_all(errand: Errand, pipe: Pipe) -> None:
    store = MessageStore.open(errand.store, errand.config)
    failed: list[BaseException] = []

    def run(writer: int) -> None:
        try:
            _put(errand, store, pipe, writer)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(errand.writer + n,)) for n in range(errand.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise failed[0]


def _put(errand: Errand, store: MessageStore, pipe: Pipe, writer: int) -> None:
    rng = random.Random(f"{errand.seed} {writer} rest")
    serial = 0
    while True:
        serial = put_some(store, pipe, errand.seed, writer, first=serial, batches=errand.batches)
        if rng.random() < 0.05:
            store.flush()


if __name__ == "__main__":
    main()
