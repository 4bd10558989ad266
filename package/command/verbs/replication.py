"""Verbs of replication: a replica, a served store, and the change of the master after a failover."""

import argparse
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..console import Console, signalled, watched
from ..output.formats import add_json
from ..output.reports import Report, camel_case, print_report, reported
from ..parser import Parser, add_queue_segment_entries, add_tls, directory, listening, size, tls_of, whole

if TYPE_CHECKING:
    from segmentlog.store import StoreConfig
    from segmentlog.store.ha import Address, Demotion, Replica, ReplicaStatus, ReplicationServer

_POLL_S: Final = 0.01
_STOP_S: Final = 0.2

# Verb `replicate`


def add_replicate(parser: Parser) -> None:
    """Verb ``replicate``: a live replica of a running broker's store.

    ::

        segmentlog replicate BROKER:10912 REPLICA                            the log; queues and index are derived
        segmentlog replicate BROKER:10912 REPLICA --broker BROKER:10911      with topics, groups and offsets

    Runs until it is interrupted, and continues where it stopped when it is started again.
    """
    parser.add_argument("master", metavar="BROKER:HAPORT", help="the broker's haListenPort, its listenPort + 1")
    parser.add_argument("store", metavar="REPLICA", help="directory of the replica; its parent exists")
    parser.add_argument("--broker", metavar="BROKER:PORT", help="copy topics, groups and offsets from this listenPort")
    parser.add_argument(
        "--from",
        dest="begin",
        choices=["first", "last"],
        default="first",
        help="segment of the broker at which an empty replica begins (default: %(default)s)",
    )
    parser.add_argument(
        "--segment-bytes",
        metavar="SIZE",
        type=size,
        help="the broker's mappedFileSizeCommitLog (default: the store's own, else 1073741824)",
    )
    add_queue_segment_entries(parser)
    parser.add_argument(
        "--flush",
        choices=["sync", "async"],
        default="async",
        help="acknowledge what is on the device, or what was written, as RocketMQ's slave (default: %(default)s)",
    )
    parser.add_argument("--limit", metavar="SIZE", type=size, help="receive at most so many bytes per second")
    add_tls(parser)
    parser.add_argument("--watch", action="store_true", help="show position and lag while it runs")
    add_json(parser)


def run_replicate(options: argparse.Namespace, console: Console) -> int:
    with signalled() as stop:
        return print_report(lambda: replicate(options, console, stop), options, console)


def replicate(options: argparse.Namespace, console: Console, stop: threading.Event) -> Report:
    """Replicate until ``stop`` is set. A finding is a replica that lacks bytes which the master announced."""
    from segmentlog.store.ha import Address, Begin, Replica, ReplicaConfig

    settings = ReplicaConfig(begin=Begin(options.begin), bytes_per_s=options.limit, tls=tls_of(options))
    broker = None if options.broker is None else Address.parse(options.broker)
    master = Address.parse(options.master)
    with Replica.open(options.store, master, _config(options), config=settings) as replica:
        status = _status_with_rate(replica)
        with _metadata_copied(replica, broker), watched(status, console, is_on=options.watch):
            replica.run(stop)
    last = replica.status
    document = {"store": options.store, **camel_case(last), "state": last.state.value}
    return Report(f"{options.store}: {_line(last)}", document, last.lag_bytes > 0)


def _config(options: argparse.Namespace) -> "StoreConfig":
    """Return the file sizes of the store, or RocketMQ's for a new one, unless flags name others."""
    from segmentlog.store import Flush, StoreConfig
    from segmentlog.store.sink import stored_config

    config = stored_config(options.store, StoreConfig(flush=Flush(options.flush)))
    named = {name: getattr(options, name) for name in ("segment_bytes", "queue_segment_entries")}
    return replace(config, **{name: size for name, size in named.items() if size is not None})


@contextmanager
def _metadata_copied(replica: "Replica", broker: "Address | None") -> Iterator[None]:
    """Copy the broker's configuration documents in a thread, until the block ends."""
    from segmentlog.store.ha import MetadataCopier

    if broker is None:
        yield
        return
    ended = threading.Event()
    copier = MetadataCopier(replica.store.path, broker)
    thread = threading.Thread(target=copier.run, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _status_with_rate(replica: "Replica") -> Callable[[], str]:
    """Return a function that writes the status as one line, with the rate since its last call."""
    before, at = replica.status.received_bytes, time.monotonic()

    def write() -> str:
        nonlocal before, at
        status, now = replica.status, time.monotonic()
        rate = (status.received_bytes - before) / max(now - at, 1e-9) / (1 << 20)
        before, at = status.received_bytes, now
        return f"{_line(status)}; {rate:.1f} MiB/s"

    return write


def _line(status: "ReplicaStatus") -> str:
    lag = "unknown" if status.lag_s is None else f"{status.lag_s:.2f} s"
    text = f"{status.state.value}, log end {status.end}, lag {status.lag_bytes} bytes, {lag}"
    text += f"; {status.received_bytes} bytes over {status.connections} connections"
    return f"{text}; {status.problem}" if status.problem else text


# Verb `serve`

_log = logging.getLogger(__name__)


def add_serve(parser: Parser) -> None:
    """Verb ``serve``: a store for replicas, while other processes write it: sinks, jobs, programs.

    ::

        segmentlog serve STORE --listen HOST:10912 --allow 10.1.0.0/16 --in-sync-replicas 2

    Takes no lock that a writer needs, and writes the confirmed offset. Runs until it is interrupted, or until a replica
    by TLS knows of a newer master: that is noted in the store.
    """
    parser.add_argument("store", metavar="STORE", type=directory, help="store directory that segmentlog writes")
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
        type=whole,
        default=1,
        help="copies that confirm a record, the store's own included; from 2 on, readFrom=confirmed and "
        "replication=sync work (default: %(default)s)",
    )
    add_tls(parser)
    parser.add_argument("--watch", action="store_true", help="show replicas and the confirmed offset while it runs")
    add_json(parser)


def run_serve(options: argparse.Namespace, console: Console) -> int:
    with signalled() as stop:
        return print_report(lambda: serve(options, console, stop), options, console)


def serve(options: argparse.Namespace, console: Console, stop: threading.Event) -> Report:
    """Serve the store until ``stop`` is set, or the server ends by itself."""
    # Findings: the server ended by itself, or a peer claims that another master has replaced the store.
    from segmentlog.store.ha import Address, FollowedLog, Quorum, ReplicationServer, ServerConfig

    address = Address.parse(options.listen, least_port=0)
    config = ServerConfig(host=address.host, port=address.port, poll_s=_POLL_S, tls=tls_of(options))
    if options.allowed:
        config = replace(config, allowed=tuple(options.allowed))
    log = FollowedLog(options.store)
    with listening(address):
        made = ReplicationServer(log, Quorum(options.in_sync_replicas), config)
    with made as server:
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


# Verb `promote`


def add_promote(parser: Parser) -> None:
    """Verb ``promote``: a store made the master of its log, mostly a replica whose master is gone.

    ::

        segmentlog promote STORE

    Run it before the first write and before `serve`. Replicas that connect learn of the epoch.
    """
    parser.add_argument(
        "store", metavar="STORE", type=directory, help="store directory; its replica or its writers have ended"
    )
    add_json(parser)


@reported
def run_promote(options: argparse.Namespace) -> Report:
    # A batch that is cut off was never committed here, so it is not a finding.
    from segmentlog.store.ha import promote

    made = promote(options.store)
    text = f"{options.store}: master of epoch {made.epoch}, which begins at physical offset {made.start}"
    if made.copy is not None:
        text += f"; of a batch it had the first rows only: they were cut off, and a copy is {made.copy}"
    return Report(text, {"store": options.store, "epoch": made.epoch, "start": made.start, "copy": made.copy})


# Verb `demote`


def add_demote(parser: Parser) -> None:
    """Verb ``demote``: a master that was replaced, made to follow the new one.

    ::

        segmentlog demote STORE --master HOST:10912 [--dry-run]

    The part that was cut off is a store in .segmentlog/cut-EPOCH-START-STOP. The new master is only asked for its
    epochs.
    """
    parser.add_argument(
        "store", metavar="STORE", type=directory, help="store directory of the former master; its writers have ended"
    )
    parser.add_argument(
        "--master", metavar="HOST:PORT", required=True, help="address at which the new master is served to replicas"
    )
    add_tls(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be cut off")
    add_json(parser)


@reported
def run_demote(options: argparse.Namespace) -> Report:
    from segmentlog.store.ha import Address, demote

    master, dry_run = Address.parse(options.master), options.dry_run
    demoted = demote(options.store, master, tls=tls_of(options), dry_run=dry_run)
    document = {**camel_case(demoted), "dryRun": dry_run}
    return Report(_text(demoted, dry_run=dry_run), document, demoted.copy is not None)


def _text(demoted: "Demotion", *, dry_run: bool) -> str:
    if demoted.copy is None:
        return f"{demoted.path}: nothing to cut off; it can follow the master of epoch {demoted.epoch}"
    done = "would be cut off, and copied to" if dry_run else "were cut off; a copy is"
    return (
        f"{demoted.path}: {demoted.stop - demoted.start} bytes from physical offset {demoted.start} on, which the "
        f"master of epoch {demoted.epoch} has not, {done} {demoted.copy}"
    )
