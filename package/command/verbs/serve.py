"""Verb ``serve``: a store for replicas, while other processes write it: sinks, jobs, programs.

::

    segmentlog serve STORE --listen HOST:10912 --allow 10.1.0.0/16 --in-sync-replicas 2

Takes no lock that a writer needs, and writes the confirmed offset. Runs until it is interrupted, or until a replica by
TLS knows of a newer master: that is noted in the store.
"""

import argparse
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, add_tls, tls_of
from ..progress import watched
from ..report import Report, print_report, signalled

if TYPE_CHECKING:
    from segmentlog.store.ha import ReplicationServer

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.01
_STOP_S: Final = 0.2


def add_arguments(parser: Parser) -> None:
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
    parser.add_argument("--watch", action="store_true", help="show replicas and the confirmed offset while it runs")
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    with signalled() as stop:
        return print_report(lambda: serve(options, console, stop), options, console)


def serve(options: argparse.Namespace, console: Console, stop: threading.Event) -> Report:
    """Serve the store until ``stop`` is set, or the server ends by itself."""
    # Findings are an end by itself, and a peer's claim that another master has replaced the store.
    from segmentlog.store.ha import Address, FollowedLog, Quorum, ReplicationServer, ServerConfig

    address = Address.parse(options.listen, least_port=0)
    config = ServerConfig(host=address.host, port=address.port, poll_s=_POLL_S, tls=tls_of(options))
    if options.allowed:
        config = replace(config, allowed=tuple(options.allowed))
    log = FollowedLog(options.store)
    with ReplicationServer(log, Quorum(options.in_sync_replicas), config) as server:
        _log.info("%s: listening at %s:%d", log.path, address.host, server.port)
        with watched(lambda: _status(log.path, server), console, is_on=options.watch):
            while not server.problem and not stop.wait(_STOP_S):
                pass
        return _report(options.store, log.end_offset, server)


def _status(path: str, server: "ReplicationServer") -> str:
    claimed = f", epoch claimed by a peer {server.claimed_epoch}" if server.claimed_epoch else ""
    return f"{path}: replicas {server.replicas}, confirmed {server.confirmed}{claimed}"


def _report(store: str, end: int, server: "ReplicationServer") -> Report:
    document = {
        "store": store,
        "end": end,
        "confirmed": server.confirmed,
        "problem": server.problem,
        "claimedEpoch": server.claimed_epoch,
    }
    text = f"{store}: served up to physical offset {end}"
    if server.confirmed is not None:
        text += f", confirmed {server.confirmed}"
    if server.claimed_epoch:
        text += f"; a peer claimed a master of epoch {server.claimed_epoch}"
    if server.problem:
        text += f"; the server ended: {server.problem}"
    return Report(text, document, bool(server.problem) or server.claimed_epoch is not None)
