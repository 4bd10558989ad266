"""Live replica of a running broker's store.

::

    python -m segmentlog.jobs.replicate BROKER:10912 REPLICA                     the log; queues and index are derived
    python -m segmentlog.jobs.replicate BROKER:10912 REPLICA --broker BROKER:10911     with topics, groups and offsets

    broker ── haListenPort ──► REPLICA/commitlog ──► consumequeue, index           readers and Spark: any time
           ── listenPort ────► REPLICA/config                                      every 10 s

Runs until it is interrupted, and goes on where it stopped when it is started again. Lost connections are made again
with growing pauses. A broker whose log does not continue the replica's is refused, and nothing is truncated.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .command_line import add_tls, camel_case, command_line, finished, signalled, tls_files

if TYPE_CHECKING:
    from segmentlog.store.ha import MetadataCopier, Replica, ReplicaStatus

_log = logging.getLogger(__name__)

_TERMINAL_S: Final = 0.5
_LOG_S: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    master
        Replication address of the broker, ``host:port``.
    store
        Directory of the replica.
    broker
        Address of the broker for its configuration documents; None copies none.
    begin
        Start of an empty replica: ``first`` or ``last`` segment.
    segment_bytes, queue_segment_entries
        The broker's ``mappedFileSizeCommitLog``, and ``mappedFileSizeConsumeQueue`` / 20; None for those of the store,
        else RocketMQ's defaults.
    flush
        ``sync`` reports what is on the device, ``async`` what was written, as RocketMQ's slave.
    bytes_per_s
        Limit on what is received; None for none.
    tls
        PEM files for a master of segmentlog: certificate, private key, authority; None for plain text.
    watch
        Whether position and lag are shown while it runs.
    """

    master: str
    store: str
    broker: str | None = None
    begin: str = "first"
    segment_bytes: int | None = None
    queue_segment_entries: int | None = None
    flush: str = "async"
    bytes_per_s: int | None = None
    tls: tuple[str, str, str] | None = None
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job: the replica's last status."""

    store: str
    status: "ReplicaStatus"

    @property
    def has_findings(self) -> bool:
        """Return whether the replica lacked bytes that the master had announced."""
        return self.status.lag_bytes > 0

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return {"store": self.store, **camel_case(self.status), "state": self.status.state.value}

    def __str__(self) -> str:
        return f"{self.store}: {line(self.status)}"


def line(status: "ReplicaStatus") -> str:
    """Return a status as one line."""
    lag = "unknown" if status.lag_s is None else f"{status.lag_s:.2f} s"
    text = f"{status.state.value}, log end {status.end}, lag {status.lag_bytes} bytes, {lag}"
    text += f"; {status.received_bytes} bytes over {status.connections} connections"
    return f"{text}; {status.problem}" if status.problem else text


def run(args: Args, stop: threading.Event) -> Report:
    """Replicate until ``stop`` is set. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If an option makes no sense, the store cannot be opened, or the master's log does not continue it.
    """
    from segmentlog.store import Flush, StoreConfig  # noqa: PLC0415 - load Arrow, which --help does not wait for
    from segmentlog.store.ha import (  # noqa: PLC0415 - as above
        Address,
        Begin,
        MetadataCopier,
        Replica,
        ReplicaConfig,
    )
    from segmentlog.store.sink import stored_config  # noqa: PLC0415 - as above

    config = stored_config(args.store, StoreConfig(flush=Flush(args.flush)))
    config = replace(
        config,
        segment_bytes=config.segment_bytes if args.segment_bytes is None else args.segment_bytes,
        queue_segment_entries=(
            config.queue_segment_entries if args.queue_segment_entries is None else args.queue_segment_entries
        ),
    )
    settings = ReplicaConfig(begin=Begin(args.begin), bytes_per_s=args.bytes_per_s, tls=tls_files(args.tls))
    broker = None if args.broker is None else Address.parse(args.broker)
    with Replica.open(args.store, Address.parse(args.master), config, config=settings) as replica:
        copier = None if broker is None else MetadataCopier(replica.store.path, broker)
        with _beside(replica, copier, stop, watch=args.watch):
            replica.run(stop)
    return Report(args.store, replica.status)


@contextmanager
def _beside(
    replica: "Replica", copier: "MetadataCopier | None", stop: threading.Event, *, watch: bool
) -> Iterator[None]:
    """Run what goes on beside a replica, until the replica ends."""
    ended = threading.Event()
    threads: list[threading.Thread] = []
    if copier is not None:
        threads.append(threading.Thread(target=copier.run, args=(ended,), daemon=True))
    if watch:
        threads.append(threading.Thread(target=_watch, args=(replica, ended), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        stop.set()
        for thread in threads:
            thread.join()


def _watch(replica: "Replica", stop: threading.Event) -> None:
    """Show the status: in place on a terminal, else as log lines."""
    if not sys.stderr.isatty():
        while not stop.wait(_LOG_S):
            _log.info("%s", line(replica.status))
        return
    from rich.console import Console  # noqa: PLC0415 - for terminals alone
    from rich.live import Live  # noqa: PLC0415 - as above

    before, at = replica.status.received_bytes, time.monotonic()
    with Live(console=Console(stderr=True), transient=True) as live:
        while not stop.wait(_TERMINAL_S):
            status, now = replica.status, time.monotonic()
            rate = (status.received_bytes - before) / (now - at) / (1 << 20)
            before, at = status.received_bytes, now
            live.update(f"{line(status)}; {rate:.1f} MiB/s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
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
    parser.add_argument(
        "--queue-segment-entries",
        metavar="N",
        type=int,
        help="entries in a file of a queue, the broker's mappedFileSizeConsumeQueue / 20 (default: the store's own, "
        "else 300000)",
    )
    parser.add_argument(
        "--flush",
        choices=["sync", "async"],
        default="async",
        help="acknowledge what is on the device, or what was written, as RocketMQ's slave (default: %(default)s)",
    )
    parser.add_argument("--limit", metavar="BYTES", type=int, help="receive at most so many bytes per second")
    add_tls(parser)
    parser.add_argument("--watch", action="store_true", help="show position and lag while it runs")


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found."""
    return Args(
        master=options.master,
        store=options.store,
        broker=options.broker,
        begin=options.begin,
        segment_bytes=options.segment_bytes,
        queue_segment_entries=options.queue_segment_entries,
        flush=options.flush,
        bytes_per_s=options.limit,
        tls=None if options.tls is None else tuple(options.tls),
        watch=options.watch,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line until SIGINT or SIGTERM; return its exit code, see `command_line`."""
    parser = command_line("replicate", "Keep a live replica of a running broker's store.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    with signalled() as stop:
        return finished(options, lambda: run(parse(options), stop))


if __name__ == "__main__":
    sys.exit(main())
