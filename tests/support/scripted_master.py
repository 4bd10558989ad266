"""Scripted master: a socket on loopback that serves a log as a RocketMQ master does, or does what a test says.

::

    ScriptedMaster(log, base, segment_bytes)      each connection: the next script, then `serve` for all later ones
    script(connection, master)                    returns or raises: the connection is closed
"""

import contextlib
import socket
import struct
from collections.abc import Callable

from .loopback import LoopbackServer

Script = Callable[[socket.socket, "ScriptedMaster"], None]


class ScriptedMaster(LoopbackServer):
    """Master of a log that a test may extend. A context manager."""

    def __init__(self, log: bytes, base: int, segment_bytes: int, *scripts: Script) -> None:
        self.log, self.base, self.segment_bytes = bytearray(log), base, segment_bytes
        self.reports: list[int] = []
        self.requests: list[int] = []
        self.heartbeat_s = 0.05
        self.frame_bytes = 1000
        self._scripts = list(scripts)
        super().__init__()

    @property
    def end(self) -> int:
        return self.base + len(self.log)

    def request(self, connection: socket.socket) -> int:
        """Receive the first report of a connection; it skips -1, as RocketMQ's master does."""
        connection.settimeout(10)
        offset = -1
        while offset == -1:
            (offset,) = struct.unpack(">q", connection.recv(8, socket.MSG_WAITALL))
        self.requests.append(offset)
        return int(offset)

    def send(self, connection: socket.socket, offset: int, data: bytes) -> None:
        connection.sendall(struct.pack(">qi", offset, len(data)) + data)

    def serve(self, connection: socket.socket, until: int | None = None) -> None:
        """Serve the log by RocketMQ's rules, until the peer or the test is done, or up to an offset."""
        at = self.request(connection) or self.end - self.end % self.segment_bytes
        connection.settimeout(self.heartbeat_s)
        while not self._stop.is_set() and (until is None or at < until):
            room = self.segment_bytes - at % self.segment_bytes
            data = bytes(self.log[at - self.base :][: min(self.frame_bytes, room)]) if at >= self.base else b""
            self.send(connection, at, data)
            at += len(data)
            if not data:
                with contextlib.suppress(TimeoutError):
                    reports = connection.recv(4096)
                    if not reports:
                        return
                    self.reports += [each for (each,) in struct.iter_unpack(">q", reports)]

    def _serve(self, connection: socket.socket) -> None:
        script = self._scripts.pop(0) if self._scripts else lambda each, master: master.serve(each)
        script(connection, self)
