"""Starts processes that write a store, fast, and lets them be killed.

::

    test ── a line of JSON ──► nursery ── fork ──► writer ── acknowledgements ──┐      pipe
         ◄── JSON, then bytes ────┴──── kill -9 after a while, or strace does ◄─┘

Run as a program: ``python -m support.writer_nursery``. It has imported everything, including modules of a first
append, and has one thread. So a writer starts within some milliseconds. Each is killed when its time has come,
or by ``strace`` at a call.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self

from segmentlog.store import Flush, MessageStore, Services, StoreConfig

from .written_stores import LINE_BYTES, SMALL, Heard, Pipe, put, put_some

TESTS = Path(__file__).parent.parent
MUST_END_SECONDS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    store: str
    seed: int
    writer: int  # number of its first thread; each further thread has the next one
    threads: int = 1
    kill_after: float | None = None  # seconds until it is killed, from its n-th report; None if it is not killed
    kill_lines: int = 0  # how much that is: lines of `Pipe`
    batches: bool = True
    flush: str = "SYNC"
    services: str = "ON_CALL"
    traced: Sequence[str] = ()  # arguments of ``strace``, which is attached before the store is opened
    thorough: bool = False  # instead: one thread puts, reopens, ticks and so on, the same way each time

    @property
    def config(self) -> StoreConfig:
        config = replace(SMALL, flush=Flush[self.flush], services=Services[self.services])
        if self.thorough:  # what is done must not depend on how fast it is done
            return replace(config, queue_flush_interval_ms=0, queue_flush_thorough_interval_ms=MUST_END_SECONDS * 1000)
        return config


@dataclass(slots=True)
class Outcome:
    status: int  # as from ``os.waitstatus_to_exitcode``: below 0 for a signal
    heard: Heard
    error: str  # what it raised, if it raised
    trace: str  # what ``strace`` printed


class Nursery:
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
        return Outcome(head["status"], Heard.of(said), head["error"], head["trace"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


# In the nursery


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        errand = Errand(store=os.path.join(folder, "store"), seed=0, writer=0, thorough=True)
        reading_end, writing_end = os.pipe()
        _thorough(errand, Pipe(writing_end))
        os.close(reading_end)
        os.close(writing_end)
    for line in sys.stdin.buffer:
        head, said = _do(Errand(**json.loads(line)))
        sys.stdout.buffer.write(json.dumps(head | {"said": len(said)}).encode() + b"\n" + said)
        sys.stdout.buffer.flush()


def _do(errand: Errand) -> tuple[dict[str, Any], bytes]:
    said_end, saying_end = os.pipe()
    report_end, reporting_end = os.pipe()
    go_end, going_end = os.pipe()
    child = os.fork()
    if child == 0:
        for fd in (said_end, report_end, going_end):
            os.close(fd)
        os.read(go_end, 1)
        _write(errand, Pipe(saying_end), reporting_end)
    for fd in (saying_end, reporting_end, go_end):
        os.close(fd)
    tracer = _attach(child, errand.traced) if errand.traced else None
    os.write(going_end, b"g")
    said = _listen(said_end, child, errand)
    error = b"".join(iter(lambda: os.read(report_end, 1 << 16), b"")).decode()
    _, status = os.waitpid(child, 0)
    trace = tracer.communicate()[1] if tracer is not None else ""
    for fd in (said_end, report_end, going_end):
        os.close(fd)
    return {"error": error, "status": os.waitstatus_to_exitcode(status), "trace": trace}, said


def _attach(child: int, options: Sequence[str]) -> "subprocess.Popen[str]":
    tracer = subprocess.Popen(["strace", *options, "-p", str(child)], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if "attached" not in line:
        os.kill(child, signal.SIGKILL)
        raise RuntimeError(f"strace says: {line}")
    return tracer


def _listen(fd: int, child: int, errand: Errand) -> bytes:
    """Take in what a writer says until it is no more."""
    said = bytearray()
    deadline = time.monotonic() + MUST_END_SECONDS
    armed = killed = False
    while True:
        if not armed and errand.kill_after is not None and len(said) >= errand.kill_lines * LINE_BYTES:
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
    status = 0
    try:
        (_thorough if errand.thorough else _simple)(errand, pipe)
    except BaseException:  # noqa: BLE001 - a forked child must not run its parent's handlers
        os.write(reporting_end, traceback.format_exc().encode())
        status = 4
    os._exit(status)


def _simple(errand: Errand, pipe: Pipe) -> None:
    store = MessageStore.open(errand.store, errand.config)
    with ThreadPoolExecutor(errand.threads) as pool:
        list(pool.map(lambda number: _put(errand, store, pipe, errand.writer + number), range(errand.threads)))


def _put(errand: Errand, store: MessageStore, pipe: Pipe, writer: int) -> None:
    rng = random.Random(f"{errand.seed} {writer} rest")
    serial = 0
    while True:
        serial = put_some(store, pipe, errand.seed, writer, first=serial, batches=errand.batches)
        if rng.random() < 0.05:
            store.flush()


def _thorough(errand: Errand, pipe: Pipe) -> None:
    """Do a bit of everything."""
    serial = 0
    for round_ in range(2):
        with MessageStore.open(errand.store, errand.config) as store:
            for count in (1, 1, 9, 1, 2, 1, 14, 1):
                put(store, pipe, errand.seed, errand.writer, first=serial, count=count)
                serial += count
            if round_ == 1:
                store.tick()


if __name__ == "__main__":
    main()
