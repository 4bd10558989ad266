"""Link: one connection to a peer that never blocks, in plain text or by mutual TLS.

::

    connect ──► socket ──► handshake with `Tls` ──► Link ──► receive, send: as much as the kernel takes
    accept  ──► socket ──► handshake comes with the first bytes     ──► wait: until it is readable, or writable

    Link      bytes of the protocol on the wire, RocketMQ's and ours
    _TlsLink  TLS records that carry them; both peers show a certificate of the same authority

The state machines see the same bytes either way. RocketMQ's replication port has no TLS, so only peers of segmentlog
can use it. RocketMQ: ``HAClient``, ``HAConnection``.
"""

import errno
import select
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Self

from ..errors import ConfigError, ReplicationError
from .settings import Address, Tls

_BUSY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Link:
    """Connected socket, which the link owns. Not thread-safe. A context manager, which closes the socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0.0)
        self._socket = connection

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self, into: memoryview) -> int:
        """Fill a buffer with the received bytes; return their number, 0 without any."""
        try:
            size = self._socket.recv_into(into)
        except _BUSY:
            return 0
        if not size:
            raise ReplicationError("the peer closed the connection")
        return size

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send as much of some pieces as the connection takes now; return the number of bytes, perhaps 0."""
        try:
            return self._socket.sendmsg(pieces)
        except _BUSY:
            return 0

    def send_all(self, data: bytes, seconds: float) -> None:
        """Send a few bytes."""
        left = memoryview(data)
        while left:
            sent = self.send([left])
            if not sent and not self._ready(select.POLLOUT, seconds):
                raise ReplicationError(f"the peer took nothing for {seconds} s")
            left = left[sent:]

    def wait(self, seconds: float) -> bool:
        """Wait until bytes can be received; return whether they can."""
        return self._ready(select.POLLIN, seconds)

    def close(self) -> None:
        self._socket.close()

    def _ready(self, event: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(max(seconds, 0.0) * 1000))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _TlsSocket(ssl.SSLSocket):
    """Socket that closes itself if the peer is gone before the handshake."""

    # ``SSLContext.wrap_socket`` takes the descriptor over, asks for the peer, and would drop the socket unclosed. Drop
    # when it closes the socket in this case.

    def getpeername(self) -> Any:
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionAbortedError(errno.ECONNABORTED, "the peer left before the handshake") from error


class _TlsLink(Link):
    """Connection by TLS; the socket is an `ssl.SSLSocket`."""

    _socket: ssl.SSLSocket

    def receive(self, into: memoryview) -> int:
        """Fill a buffer with several TLS records: the selector does not report records that are decrypted already."""
        got = 0
        while got < len(into):
            try:
                size = super().receive(into[got:])
            except ReplicationError:
                if got:  # the next call raises it again
                    break
                raise
            if not size:
                break
            got += size
        return got

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send the pieces one after the other: TLS has no gathering send."""
        sent = 0
        for piece in pieces:
            try:
                size = self._socket.send(piece)
            except _BUSY:
                break
            sent += size
            if size < len(piece):
                break
        return sent


def connect(address: Address, seconds: float, tls: Tls | None) -> Link:
    """Connect to a peer; with ``tls`` its certificate has to name the address, and be of the same authority."""
    if not isinstance(address, Address):
        raise ConfigError(f"{address!r} is not an Address", fix="Pass such as Address('broker-a', 10912)")
    connection = socket.create_connection(address, timeout=seconds)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return Link(connection)
        context = _context(tls, ssl.PROTOCOL_TLS_CLIENT)
        connection = context.wrap_socket(connection, server_hostname=address.host, do_handshake_on_connect=False)
        connection.do_handshake()
        return _TlsLink(connection)
    except BaseException:
        connection.close()
        raise


class Acceptor:
    """Links of accepted connections; the handshake with ``tls`` takes place while their first bytes are received."""

    def __init__(self, tls: Tls | None) -> None:
        self._context = None if tls is None else _context(tls, ssl.PROTOCOL_TLS_SERVER)

    def link(self, connection: socket.socket) -> Link:
        connection.settimeout(0.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return Link(connection)
        return _TlsLink(self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False))


def _context(tls: Tls, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslsocket_class = _TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    for name in ("certificate", "key", "authority"):  # OpenSSL does not say which file it cannot read
        with _named(f"the {name} {getattr(tls, name)}"), open(getattr(tls, name), "rb"):
            pass
    with _named(f"the certificate {tls.certificate} with the key {tls.key}"):
        context.load_cert_chain(tls.certificate, tls.key, _refuse_passphrase)
    with _named(f"the authority {tls.authority}"):
        context.load_verify_locations(tls.authority)
    return context


@contextmanager
def _named(files: str) -> Iterator[None]:
    """Name files of a `Tls` in the error of the system or of OpenSSL."""
    try:
        yield
    except (OSError, ValueError) as error:
        fix = "Name PEM files: a certificate, its private key without a passphrase, and the authority's certificate"
        raise ConfigError(
            f"tls: {files} cannot be used: {getattr(error, 'strerror', None) or error}", fix=fix
        ) from error


def _refuse_passphrase() -> NoReturn:
    raise ValueError("the key has a passphrase")  # without such a function OpenSSL asks the terminal for it


def left_of(pieces: Sequence[memoryview], sent: int) -> list[memoryview]:
    """Return the rest of some pieces after ``sent`` bytes of them were sent."""
    left = []
    for piece in pieces:
        skipped = min(sent, len(piece))
        sent -= skipped
        if skipped < len(piece):
            left.append(piece[skipped:])
    return left
