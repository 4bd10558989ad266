"""Processes that write a store and are killed.

::

    test ── fork server ──► writer ── acknowledgements ──┐      pipe
         ◄──────────── kill -9 after a while, or strace does ◄─┘
"""

import os
import random
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NoReturn

from segmentlog.store import Flush, MessageStore, Services, StoreConfig

from .processes import fork_server
from .written_stores import LINE_BYTES, SMALL, Heard, Pipe, put, put_some

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
    status: int | None  # below 0 for a signal
    heard: Heard
    error: str  # what it raised, if it raised
    trace: str  # what ``strace`` printed


def send(errand: Errand) -> Outcome:
    """Run a writer until it ends, or is killed."""
    said, saying = fork_server().Pipe(duplex=False)
    ours, theirs = fork_server().Pipe()
    with said, ours:
        writer = fork_server().Process(target=_write, args=(errand, saying, theirs))
        writer.start()
        saying.close()
        theirs.close()
        tracer = _attach(writer, errand.traced) if errand.traced else None
        ours.send("go")
        heard = _listen(said.fileno(), writer, errand)
        writer.join()
        error = ""
        with suppress(EOFError, ConnectionResetError):  # it was killed, or came to its end
            error = ours.recv()
    return Outcome(writer.exitcode, Heard.of(heard), error, tracer.communicate()[1] if tracer is not None else "")


def _attach(writer: BaseProcess, options: Sequence[str]) -> "subprocess.Popen[str]":
    tracer = subprocess.Popen(["strace", *options, "-p", str(writer.pid)], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if "attached" not in line:
        writer.kill()
        raise RuntimeError(f"strace says: {line}")
    return tracer


def _listen(fd: int, writer: BaseProcess, errand: Errand) -> bytes:
    """Take in what a writer says until it is no more."""
    said = bytearray()
    deadline = time.monotonic() + MUST_END_SECONDS
    armed = killed = False
    while True:
        if not armed and errand.kill_after is not None and len(said) >= errand.kill_lines * LINE_BYTES:
            armed, deadline = True, time.monotonic() + errand.kill_after
        ready, _, _ = select.select([fd], [], [], None if killed else max(0.0, deadline - time.monotonic()))
        if not killed and time.monotonic() >= deadline:
            writer.kill()
            killed = True
        if ready:
            piece = os.read(fd, 1 << 16)
            if not piece:
                return bytes(said)
            said += piece


# In a writer


def _write(errand: Errand, saying: Connection, theirs: Connection) -> None:
    theirs.recv()
    try:
        (_thorough if errand.thorough else _simple)(errand, Pipe(saying.fileno()))
    except BaseException:  # noqa: BLE001 - told to the test
        theirs.send(traceback.format_exc())
        sys.exit(4)


def _simple(errand: Errand, pipe: Pipe) -> NoReturn:
    store = MessageStore.open(errand.store, errand.config)
    with ThreadPoolExecutor(errand.threads) as pool:
        list(pool.map(lambda number: _put(errand, store, pipe, errand.writer + number), range(errand.threads)))
    raise AssertionError("it was not killed")


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
