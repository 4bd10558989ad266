"""Settings of replicas and servers, and status of a replica.

::

    ReplicaConfig   begin, limit, time limits ──► Replica ──► ReplicaStatus    a snapshot, on request

    CONNECTING ──► VERIFYING ──► FOLLOWING ──► STOPPED   `stop` is set
        ▲              │             │     └─► FAILED    another log, a failed disk
        └── PAUSED ◄───┴─────────────┘   a lost connection, a full disk
"""

import ipaddress
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Self

from ..config import check_fields
from ..errors import ConfigError

_HOST_MAX: Final = 253
_SHOWN: Final = 100
LOOPBACK: Final = ("127.0.0.0/8", "::1/128")  # networks of this host


class Address(NamedTuple):
    """Host and port of a peer."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, least_port: int = 1) -> Self:
        """Parse ``host:port``, an IPv6 address in brackets; ``least_port`` 0 accepts port 0, any free port of a server.

        `ConfigError` if the text has another form.
        """
        host, _, port = text.rpartition(":")
        number = int(port) if re.fullmatch("[0-9]{1,5}", port) else -1
        if not _is_host(host) or not least_port <= number < 1 << 16:
            problem = f"the address {text[:_SHOWN]!r} is not host:port"
            raise ConfigError(problem, fix="Write host:port, an IPv6 address in brackets")
        return cls(host.strip("[]"), number)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _is_host(text: str) -> bool:
    """Tell whether the resolver takes a text for the name of a host; it raises no `OSError` for others."""
    try:
        return text.isprintable() and 0 < len(text.encode("idna")) <= _HOST_MAX
    except UnicodeError:  # an empty label, or one of more than 63 letters
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """Files of one peer for mutual TLS, in PEM format. Both peers trust only certificates of the same authority.

    Attributes
    ----------
    certificate
        This peer's certificate. A master's names the host or the IP address that its replicas connect to.
    key
        Private key of the certificate, without a passphrase.
    authority
        Certificate of the authority that signed the certificate of the other peer.
    """

    certificate: str
    key: str
    authority: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """Settings of a replication server.

    Attributes
    ----------
    host, port
        Address to listen at (``haListenPort``); port 0 takes a free one.
    allowed
        Networks whose peers may connect. The protocol has no authentication: a peer can read the whole log.
    connections_max
        Connections that are served at the same time. They use at most a quarter of the descriptors of the process
        (RLIMIT_NOFILE): the store needs the rest.
    connections_per_address
        Connections of one address at the same time. A connection without a request makes room for a new one.
    tls
        Files for mutual TLS with replicas of segmentlog; None for plain text, as RocketMQ's slaves need.
    poll_s
        Seconds between two looks at the end of the log, unless an append wakes the server earlier.
    """

    host: str = "127.0.0.1"
    port: int = 10912
    allowed: tuple[str, ...] = LOOPBACK
    connections_max: int = 1000
    connections_per_address: int = 32
    tls: Tls | None = None
    poll_s: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port is {self.port}", fix="Pass a number from 1 to 65535, or 0 for a free port")
        for text in self.allowed:
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise ConfigError(f"allowed names {text!r}, which is not a network", fix="Write 10.1.0.0/16") from error
        for name in ("connections_max", "connections_per_address"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="Pass 1 or more")


class Begin(Enum):
    """Start of a replica whose store is empty; any other replica continues at the end of its log."""

    FIRST = "first"
    """First segment that the master still has."""
    LAST = "last"
    """Last segment of the master, as RocketMQ's slave."""


class ReplicaState(Enum):
    """Phase of a replica."""

    CONNECTING = "connecting"
    VERIFYING = "verifying"
    FOLLOWING = "following"
    PAUSED = "paused"
    STOPPED = "stopped"
    """`Replica.run` ended because `stop` was set."""
    FAILED = "failed"
    """`Replica.run` ended with an error, which ``problem`` states."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaConfig:
    """Settings of a replica.

    Attributes
    ----------
    begin
        Start of an empty store.
    bytes_per_s
        Limit on the bytes received per second; None for none.
    connect_s
        Seconds to wait for a connection.
    probe_s
        Seconds to wait for the first byte of a segment before it counts as expired, for `Begin.FIRST`.
    tls
        Files for mutual TLS with a master of segmentlog; None for plain text, as RocketMQ's masters need.
    """

    begin: Begin = Begin.FIRST
    bytes_per_s: int | None = None
    connect_s: float = 5.0
    probe_s: float = 3.0
    tls: Tls | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.bytes_per_s is not None and self.bytes_per_s < 1:
            raise ConfigError(f"bytes_per_s is {self.bytes_per_s}", fix="Pass 1 or more, or None for no limit")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaStatus:
    """Position and counters of a replica at one moment.

    Attributes
    ----------
    state
        Phase.
    end
        Physical offset up to which the store holds whole records.
    lag_bytes
        Announced bytes that the store lacks. 0 after a heartbeat: the master has nothing new.
    lag_s
        Seconds from the store time of the newest record until it was appended here, by the clocks of both hosts. 0
        after a heartbeat: the master has nothing new. None before the first record.
    received_bytes
        Bytes received since the start.
    connections
        Connections since the start.
    problem
        Reason of the last pause, or of the failure; empty if there was none since the last bytes.
    """

    state: ReplicaState
    end: int
    lag_bytes: int
    lag_s: float | None
    received_bytes: int
    connections: int
    problem: str
