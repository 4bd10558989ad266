"""Replication master of a store that other processes write: sinks, jobs, programs.

::

    python -m segmentlog.jobs.serve STORE --listen HOST:10912 --allow 10.1.0.0/16 --in-sync-replicas 2

    Spark sinks ──► STORE ──► serve ──► replicas, RocketMQ's slaves
                      ▲         │
                      └─────────┘ .segmentlog/confirmed: readFrom=confirmed, replication=sync

Takes no lock that a writer needs, and writes the confirmed offset. Runs until it is interrupted, or until a replica by
TLS knows of a newer master: that is noted in the store.
"""

import argparse
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .command_line import add_tls, command_line, finished, signalled, tls_files

if TYPE_CHECKING:
    from segmentlog.store.ha import ReplicationServer

_log = logging.getLogger(__name__)

_LOG_S: Final = 10.0
_POLL_S: Final = 0.01
_STOP_S: Final = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    store
        Store directory.
    listen
        Address to listen at, ``host:port``; port 0 takes a free one.
    allowed
        Networks whose peers may connect; none for loopback alone.
    in_sync_replicas
        Copies that confirm a record, the store's own included.
    tls
        PEM files for replicas of segmentlog: certificate, private key, authority; None for plain text.
    watch
        Whether replicas and the confirmed offset are logged while it runs.
    """

    store: str
    listen: str = "127.0.0.1:10912"
    allowed: tuple[str, ...] = ()
    in_sync_replicas: int = 1
    tls: tuple[str, str, str] | None = None
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job.

    Attributes
    ----------
    end, confirmed
        Physical offsets up to which the log was served, and confirmed.
    problem
        Reason why the server ended by itself; empty if it was told to.
    claimed_epoch
        See `ReplicationServer.claimed_epoch`.
    """

    store: str
    end: int
    confirmed: int | None
    problem: str
    claimed_epoch: int | None = None

    @property
    def has_findings(self) -> bool:
        """Return whether the server ended by itself, or a peer claimed that another master has replaced it."""
        return bool(self.problem) or self.claimed_epoch is not None

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return {
            "store": self.store,
            "end": self.end,
            "confirmed": self.confirmed,
            "problem": self.problem,
            "claimedEpoch": self.claimed_epoch,
        }

    def __str__(self) -> str:
        confirmed = "" if self.confirmed is None else f", confirmed {self.confirmed}"
        problem = f"; the server ended: {self.problem}" if self.problem else ""
        claimed = f"; a peer claimed a master of epoch {self.claimed_epoch}" if self.claimed_epoch else ""
        return f"{self.store}: served up to physical offset {self.end}{confirmed}{claimed}{problem}"


def run(args: Args, stop: threading.Event) -> Report:
    """Serve the store until ``stop`` is set, or the server ends by itself. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If an option makes no sense, no store that segmentlog writes is there, or another process serves it.
    OSError
        If the address cannot be listened at.
    """
    from segmentlog.store.ha import (  # noqa: PLC0415 - load Arrow, which --help does not wait for
        Address,
        FollowedLog,
        Quorum,
        ReplicationServer,
        ServerConfig,
    )

    address = Address.parse(args.listen, least_port=0)
    config = ServerConfig(host=address.host, port=address.port, poll_s=_POLL_S, tls=tls_files(args.tls))
    if args.allowed:
        config = replace(config, allowed=args.allowed)
    log = FollowedLog(args.store)
    with ReplicationServer(log, Quorum(args.in_sync_replicas), config) as server:
        _log.info("%s: listening at %s:%d", log.path, address.host, server.port)
        _wait(server, log.path, stop, watch=args.watch)
        return Report(args.store, log.end_offset, server.confirmed, server.problem, server.claimed_epoch)


def _wait(server: "ReplicationServer", path: str, stop: threading.Event, *, watch: bool) -> None:
    """Wait for the end, and log the status meanwhile."""
    waited = 0.0
    while not server.problem and not stop.wait(_STOP_S):
        waited += _STOP_S
        if watch and waited >= _LOG_S:
            waited = 0.0
            claimed = f", epoch claimed by a peer {server.claimed_epoch}" if server.claimed_epoch else ""
            _log.info("%s: replicas %s, confirmed %s%s", path, server.replicas, server.confirmed, claimed)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("store", metavar="STORE", help="store directory that segmentlog writes")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:10912",
        help="address for replicas; it has no authentication (default: %(default)s)",
    )
    parser.add_argument(
        "--allow",
        dest="allowed",
        metavar="NETWORK",
        action="append",
        default=[],
        help="network whose hosts may connect, such as 10.1.0.0/16; may be repeated (default: loopback)",
    )
    parser.add_argument(
        "--in-sync-replicas",
        metavar="N",
        type=int,
        default=1,
        help="copies that confirm a record, the store's own included; from 2 on, readFrom=confirmed and "
        "replication=sync work (default: %(default)s)",
    )
    add_tls(parser)
    parser.add_argument("--watch", action="store_true", help="log replicas and the confirmed offset every 10 s")


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found."""
    return Args(
        store=options.store,
        listen=options.listen,
        allowed=tuple(options.allowed),
        in_sync_replicas=options.in_sync_replicas,
        tls=None if options.tls is None else tuple(options.tls),
        watch=options.watch,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line until SIGINT or SIGTERM; return its exit code, see `command_line`."""
    parser = command_line("serve", "Serve a store to replicas while other processes write it.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    with signalled() as stop:
        return finished(options, lambda: run(parse(options), stop))


if __name__ == "__main__":
    sys.exit(main())
