"""Listening socket of a server that outlives a lack of descriptors.

::

    descriptors   ........│spare        accept ──► socket
    all in use    ////////│spare        accept fails ──► spare is closed ──► accept, close ──► spare is opened again
    no spare      ////////│/            `is_exhausted`: a connection waits in the backlog until `recover` has a spare

A connection that is left in the backlog keeps the listening socket readable, and its server busy. So each is accepted,
and closed at once: its peer connects again later.
"""

import contextlib
import errno
import socket
from typing import Final, NamedTuple

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Accepted(NamedTuple):
    """Connection that was accepted; the receiver closes it."""

    connection: socket.socket
    host: str
    port: int


class Listener:
    """Listening socket, and a spare descriptor. Not thread-safe.

    Parameters
    ----------
    host, port
        Address; port 0 takes a free one.

    Raises
    ------
    OSError
        If the address is in use or does not exist, or no descriptor is free.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._spare: socket.socket | None = socket.socket()
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
        except BaseException:
            self._give_up_spare()
            raise
        self._socket.settimeout(0.0)
        self.port: int = self._socket.getsockname()[1]
        """Port at which it listens."""
        self.turned_away = 0
        """Connections that were closed, or left to wait, for want of a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    @property
    def is_exhausted(self) -> bool:
        """True if connections have to wait: neither for one of them nor as a spare is a descriptor free."""
        return self._spare is None

    def recover(self) -> bool:
        """Take a spare descriptor if there is none; return whether connections can be accepted."""
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = socket.socket()
        return self._spare is not None

    def accept(self) -> Accepted | None:
        """Return a connection that waits; None if none does, or if it was closed for want of a descriptor."""
        try:
            connection, address = self._socket.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._turn_away()
            return None
        return Accepted(connection, address[0], address[1])

    def close(self) -> None:
        """Close the socket and the spare descriptor."""
        self._socket.close()
        self._give_up_spare()

    def _turn_away(self) -> None:
        self.turned_away += 1
        self._give_up_spare()
        with contextlib.suppress(OSError):  # another thread was faster to use the descriptor
            self._socket.accept()[0].close()
        self.recover()

    def _give_up_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None
