"""Verb ``replicate``: a live replica of a running broker's store.

::

    segmentlog replicate BROKER:10912 REPLICA                            the log; queues and index are derived
    segmentlog replicate BROKER:10912 REPLICA --broker BROKER:10911      with topics, groups and offsets

Runs until it is interrupted, and continues where it stopped when it is started again.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, add_queue_segment_entries, add_tls, tls_of
from ..progress import watched
from ..report import Report, camel_case, print_report, signalled

if TYPE_CHECKING:
    from segmentlog.store import StoreConfig
    from segmentlog.store.ha import Address, Replica, ReplicaStatus


def add_arguments(parser: Parser) -> None:
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
        metavar="N",
        type=int,
        help="the broker's mappedFileSizeCommitLog (default: the store's own, else 1073741824)",
    )
    add_queue_segment_entries(parser)
    parser.add_argument(
        "--flush",
        choices=["sync", "async"],
        default="async",
        help="acknowledge what is on the device, or what was written, as RocketMQ's slave (default: %(default)s)",
    )
    parser.add_argument("--limit", metavar="BYTES", type=int, help="receive at most so many bytes per second")
    add_tls(parser)
    parser.add_argument("--watch", action="store_true", help="show position and lag while it runs")
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
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
