"""Replication under kills and a broken network: logs end up equal, and nothing acknowledged is missing on the replica.

::

    MessageStore + server ──► proxy: drops, delays, repeats and swaps frames, cuts within them ──► replica
    MessageStore + server ──► replica process, killed again and again
"""

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from segmentlog.store import MessageStore, ReplicationError
from segmentlog.store.ha import Address, Attachments, Quorum, Replica, ReplicationServer, ServerConfig
from support import replicas
from support.replicas import log_bytes
from support.scale import scale
from support.written_stores import SMALL, message

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

PLAIN = replace(SMALL, record_crc=False)
SECONDS = 300
until = partial(replicas.until, seconds=SECONDS)
ENOUGH, TRIES = 20, 2_000
"""Acknowledged appends over one broken network, and the most appends for them: how many fail depends on the load."""
PAUSE_S = 0.02
"""Between appends under kills: every start of a replica takes longer, the longer the log of these small segments is."""


class Proxy:
    """Passes connections on and treats frames of the master at random; a context manager."""

    def __init__(self, port: int, seed: int) -> None:
        self._target, self._draw = port, random.Random(seed)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.done: dict[str, int] = {}
        self.is_broken = True
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                master = socket.create_connection(("127.0.0.1", self._target))
                for target, given in ((self._reports, (peer, master)), (self._frames, (master, peer))):
                    self._threads.append(threading.Thread(target=target, args=given))
                    self._threads[-1].start()

    def _reports(self, peer: socket.socket, master: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := peer.recv(4096):
                master.sendall(data)
        self._close(peer, master)

    def _frames(self, master: socket.socket, peer: socket.socket) -> None:
        kept = b""
        with contextlib.suppress(OSError, struct.error):
            while header := master.recv(12, socket.MSG_WAITALL):
                size = struct.unpack(">qi", header)[1]
                frame = header + (master.recv(size, socket.MSG_WAITALL) if size else b"")
                fate = self._draw.choice(["pass"] * 8 + ["drop", "delay", "repeat", "swap", "cut"])
                fate = fate if self.is_broken else "pass"
                self.done[fate] = self.done.get(fate, 0) + 1
                if fate == "delay":
                    time.sleep(0.02)
                elif fate == "repeat":
                    peer.sendall(frame)
                elif fate == "cut":
                    peer.sendall(frame[: self._draw.randrange(len(frame))])
                    break
                if fate == "swap":
                    kept = frame
                elif fate != "drop":
                    peer.sendall(frame + kept)
                    kept = b""
        self._close(peer, master)

    def _close(self, *ends: socket.socket) -> None:
        for each in ends:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close(self._server)
        for thread in self._threads:
            thread.join()


class Broken(NamedTuple):
    """Appends over one broken network, and what became of its frames."""

    acknowledged: int
    refused: int
    fates: dict[str, int]


def append_over_a_broken_network(folder: Path, seed: int) -> Broken:
    first, copy = folder / f"first{seed}", folder / f"copy{seed}"
    quorum, stop = Quorum(2, timeout_s=0.1), threading.Event()
    acknowledged = refused = 0
    with (
        MessageStore.open(first, PLAIN, attached=Attachments(acknowledgers=[quorum], listeners=[quorum])) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0)) as server,
        Proxy(server.port, seed) as proxy,
        Replica.open(str(copy), Address("127.0.0.1", proxy.port), PLAIN) as replica,
    ):
        thread = threading.Thread(target=replica.run, args=(stop,))
        thread.start()
        try:
            until(lambda: any(each is not None for each in server.replicas.values()))
            for serial in range(TRIES):
                if acknowledged == ENOUGH:
                    break
                try:
                    placed = store.append(message(seed, 1, serial))
                except ReplicationError:
                    refused += 1
                    time.sleep(0.02)  # without a replica it fails at once: let one connect again
                    continue
                acknowledged += 1
                safe = placed.physical_offset + placed.size
                assert replica.store.end_offset >= safe
            proxy.is_broken = False
            until(lambda: replica.store.end_offset == store.end_offset)
            end = store.end_offset
        finally:
            stop.set()
            thread.join()
    assert log_bytes(copy)[:end] == log_bytes(first)[:end]
    return Broken(acknowledged, refused, proxy.done)


def test_a_broken_network_loses_nothing_that_was_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.ha.replica.FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr("segmentlog.store.ha.replica.LONGEST_PAUSE_S", 0.05)
    with ThreadPoolExecutor(5) as pool:  # each waits for heartbeats most of its time
        found = list(pool.map(partial(append_over_a_broken_network, tmp_path), range(scale(1, 10, 500))))
    acknowledged, refused = (sum(each[at] for each in found) for at in (0, 1))
    fates = Counter[str]()
    for each in found:
        fates.update(each.fates)
    assert acknowledged == ENOUGH * len(found)
    assert refused
    assert set(fates) == {"pass", "drop", "delay", "repeat", "swap", "cut"}


def test_killed_replicas_catch_up_after_a_restart(tmp_path: Path) -> None:
    kills, draw = scale(1, 15, 1000), random.Random(5)
    first, copy = tmp_path / "first", tmp_path / "copy"
    quorum, stop, serial = Quorum(), threading.Event(), 0
    with (
        MessageStore.open(first, PLAIN, attached=Attachments(listeners=[quorum])) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0)) as server,
    ):

        def write() -> None:
            nonlocal serial
            while not stop.is_set():
                store.append(message(8, 1, serial))
                serial += 1
                time.sleep(PAUSE_S)

        writer = threading.Thread(target=write)
        writer.start()
        where = [f"127.0.0.1:{server.port}", str(copy), "--segment-bytes", str(PLAIN.segment_bytes)]
        command = [sys.executable, "-m", "segmentlog.command", "replicate", *where, "--queue-segment-entries", "20"]
        for _ in range(kills):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                at = store.end_offset
                until(lambda: any((each or 0) > at for each in server.replicas.values()))  # noqa: B023
                time.sleep(draw.random() * 0.1)
                os.kill(process.pid, signal.SIGKILL)
        stop.set()
        writer.join()
        end = store.end_offset
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            until(lambda: end in server.replicas.values())
            process.terminate()
            assert process.wait(SECONDS) == 0
    assert log_bytes(copy)[:end] == log_bytes(first)[:end]
