"""Server on loopback whose connections are served by a thread each: what scripted brokers and masters are made of."""

import socket
import struct
import threading
from contextlib import suppress
from typing import Self


class LoopbackServer:
    """A context manager; at its end connections are shut down, and threads have ended."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _serve(self, connection: socket.socket) -> None:
        """Serve a connection until it is closed; errors of sockets, and of frames that are cut, end it."""
        raise NotImplementedError

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._open.append(connection)
                self._threads.append(threading.Thread(target=self._run, args=(connection,)))
                self._threads[-1].start()

    def _run(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, struct.error):
            self._serve(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for each in (self._server, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()
