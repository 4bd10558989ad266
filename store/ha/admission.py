"""Admission of connections to a server: the listening socket, places, and log lines about peers.

::

    descriptors   ........│spare        accept ──► socket
    all in use    ////////│spare        accept fails ──► spare is closed ──► accept, close ──► spare is opened again
    no spare      ////////│/            `is_exhausted`: a connection waits in the backlog until `recover` has a spare

    address   connections, oldest first          s silent: no request yet     r requested
    10.1.0.7  [s r s s s]                  full: its oldest silent connection is closed, and frees the place
    10.1.0.9  [r r r r r]                  full, and all have requests: the new connection is refused
    all       [s r s s s][r r …][s]        full: the oldest silent connection of the address with most of them is closed

    second    0       1    2    3   …   61                      subject: an address, and its event
    log       line    -    -    -       line (3 more before)

A connection that waits in the backlog keeps the listening socket readable, and its server busy. So each connection is
accepted, and closed at once without a descriptor: its peer connects again later. A connection during its handshake by
TLS is silent, too. RocketMQ's slaves send their request 5 s after they connected.
"""

import contextlib
import errno
import logging
import socket
import time
from collections import OrderedDict
from typing import Final, NamedTuple

from ..errors import ReplicationError

LINE_EVERY_S: Final = 60.0
"""Seconds between two log lines of a subject."""
_SUBJECTS_MAX: Final = 1024
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Accepted(NamedTuple):
    """Connection that was accepted; the receiver closes it."""

    connection: socket.socket
    host: str
    port: int


class Listener:
    """Listening socket, and a spare descriptor. Not thread-safe.

    Port 0 takes a free port. `OSError` if the address is in use or does not exist, or without a free descriptor.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._spare: socket.socket | None = socket.socket()
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
        except BaseException:
            self._close_spare()
            raise
        self._socket.settimeout(0.0)
        self.port: int = self._socket.getsockname()[1]
        """Port at which it listens."""
        self.turned_away = 0
        """Number of times that a connection was closed, or left to wait, without a free descriptor."""

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    @property
    def is_exhausted(self) -> bool:
        """True while connections wait in the backlog, since no descriptor is free."""
        return self._spare is None

    def recover(self) -> bool:
        """Take a spare descriptor if it is missing; return whether connections can be accepted."""
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = socket.socket()
        return self._spare is not None

    def accept(self) -> Accepted | None:
        """Return a waiting connection; None without one, or if it was closed without a free descriptor."""
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
        self._close_spare()

    def _turn_away(self) -> None:
        self.turned_away += 1
        self._close_spare()
        with contextlib.suppress(OSError):  # another thread took the descriptor of the spare
            self._socket.accept()[0].close()
        self.recover()

    def _close_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None


class Places:
    """Connections by address: at most ``most`` at the same time, ``of_address`` per address. Not thread-safe."""

    def __init__(self, most: int, of_address: int) -> None:
        self._most = most
        self._of_address = of_address
        self._count = 0
        self._silent: dict[str, dict[int, bool]] = {}  # per address: silent or not, by number and in order of arrival

    def victim_of(self, address: str) -> int | None:
        """Return the connection to close for a new one of an address; None if a place is free.

        Raises `ReplicationError` if all connections that could be closed have sent requests.
        """
        held = self._silent.get(address, {})
        if len(held) >= self._of_address:
            taken = f"all {self._of_address} places of this address are taken"
        elif self._count >= self._most:
            taken = f"all {self._most} places are taken"
            held = max(self._silent.values(), key=lambda each: sum(each.values()))
        else:
            return None
        for number, is_silent in held.items():
            if is_silent:
                return number
        raise ReplicationError(taken)

    def add_connection(self, address: str, number: int) -> None:
        """Assign a place to a connection, which has sent no request."""
        self._silent.setdefault(address, {})[number] = True
        self._count += 1

    def note_request(self, address: str, number: int) -> None:
        """Note that a connection has sent its request: it keeps its place."""
        self._silent[address][number] = False

    def remove_connection(self, address: str, number: int) -> None:
        """Free the place of a connection that ended."""
        held = self._silent[address]
        del held[number]
        self._count -= 1
        if not held:
            del self._silent[address]


class RareLines:
    """Log lines that peers cause, limited to one per subject and minute: no peer fills the log. Not thread-safe."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._written: OrderedDict[str, tuple[float, int]] = (
            OrderedDict()
        )  # time of the line, and number of lines left out since

    def write(self, level: int, subject: str, text: str) -> None:
        """Log a line, unless the subject had one within the last minute."""
        now = time.monotonic()
        at, left_out = self._written.get(subject, (now - LINE_EVERY_S, 0))
        if now - at < LINE_EVERY_S:
            self._written[subject] = at, left_out + 1
            return
        self._log.log(level, "%s%s", text, f" ({left_out} more before)" if left_out else "")
        self._written[subject] = now, 0
        self._written.move_to_end(subject)
        if len(self._written) > _SUBJECTS_MAX:
            self._written.popitem(last=False)
