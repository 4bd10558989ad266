"""Masters, their replicas, and both after a failover."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from segmentlog.store import MessageStore, StoreConfig
from segmentlog.store.ha import FollowedLog, Quorum, ReplicationServer, ServerConfig, Tls, promote

from .replicas import following, until
from .written_stores import SMALL, message

PLAIN: Final = replace(SMALL, record_crc=False)
ROOMY: Final = replace(PLAIN, segment_bytes=1 << 20, queue_segment_entries=5000, index_slots=5000, index_entries=20000)
"""For tens of thousands of messages: each file of `SMALL` would be mapped for each queue."""


class Pair(NamedTuple):
    """A master, and the store that was promoted over it."""

    old: Path  # old, new: store directories, both closed
    new: Path
    parting: int  # physical offset up to which their logs are equal


def append(path: Path, serials: Sequence[int], config: StoreConfig = PLAIN) -> int:
    with MessageStore.open(path, config) as store:
        for serial in serials:
            store.append(message(3, 1, serial))
        return store.end_offset


@contextmanager
def served(path: Path, tls: Tls | None = None, port: int = 0, copies: int = 1) -> Iterator[ReplicationServer]:
    config = ServerConfig(port=port, tls=tls, poll_s=0.01)
    with ReplicationServer(FollowedLog(path), Quorum(copies), config) as server:
        yield server


class LimitedLog(FollowedLog):
    """Log that a server sends up to a limit, as if it had ended there."""

    limit = 1 << 62

    @property
    def settled_offset(self) -> int:
        return min(super().settled_offset, self.limit)


@contextmanager
def limited(path: Path, limit: int) -> Iterator[tuple[LimitedLog, int]]:
    """Serve a store up to a limit, which can be moved; yield its log, and the port."""
    log = LimitedLog(path)
    log.limit = limit
    with ReplicationServer(log, Quorum(1), ServerConfig(port=0, poll_s=0.01)) as server:
        yield log, server.port


def follow_up(path: Path, port: int, end: int, tls: Tls | None = None, config: StoreConfig = PLAIN) -> None:
    with following(path, port, store_config=config, probe_s=0.3, tls=tls) as replica:
        until(lambda: replica.status.end == end)


def part(folder: Path, old: int, new: int) -> Pair:
    """Write a master and its replica, promote that one, and append to both: so many messages of their own."""
    pair = Pair(folder / "old", folder / "new", append(folder / "old", range(100)))
    shutil.copytree(pair.old, pair.new)
    promote(pair.new)
    append(pair.old, range(1000, 1000 + old))
    append(pair.new, range(2000, 2000 + new))
    return pair
