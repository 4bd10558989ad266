"""Replicas in threads, and their logs."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from segmentlog.store import StoreConfig
from segmentlog.store.ha import Address, Quorum, Replica, ReplicaConfig


@contextmanager
def following(
    path: Path, port: int, *, store_config: StoreConfig, listeners: Sequence[Quorum] = (), **settings: Any
) -> Iterator[Replica]:
    """Run a replica of a master of this host in a thread, whose error is raised at the end.

    ``settings`` are those of `ReplicaConfig`.
    """
    stop, address, errors = threading.Event(), Address("127.0.0.1", port), list[Exception]()
    config = ReplicaConfig(**settings)

    def run() -> None:
        try:
            replica.run(stop)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    with Replica.open(str(path), address, store_config, config=config, listeners=listeners) as replica:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield replica
        finally:
            stop.set()
            thread.join()
    for error in errors:
        raise error


def until(condition: Callable[[], bool], *, seconds: float = 300) -> None:
    """Wait for a condition; an `AssertionError` if it does not come in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def log_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))
