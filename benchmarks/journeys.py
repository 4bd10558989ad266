"""Functions of the project that a journey calls, each counted once: how long the way through the code is.

::

    python benchmarks/journeys.py            a table: journey, functions, packages of the store that they are in
"""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from segmentlog.store import MessageStore, Outgoing, QueueRange, ScanSpec, Snapshot, StoreConfig

PACKAGE = f"{os.sep}segmentlog{os.sep}"
CONFIG = StoreConfig(segment_bytes=1 << 20)


def called(journey: Callable[[], object]) -> set[tuple[str, str]]:
    """Run a journey; return its functions as module and qualified name."""
    found: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and PACKAGE in path:
            name = frame.f_code.co_qualname
            if "<module>" not in name and "<lambda>" not in name and not name.endswith(">"):
                found.add((path.rpartition(PACKAGE)[2], name))

    sys.setprofile(note)
    try:
        journey()
    finally:
        sys.setprofile(None)
    return found


def journeys(path: Path) -> dict[str, Callable[[], object]]:
    """Journeys on a store with some messages, each of which has run once, so that caches are as in a long process."""
    store = MessageStore.open(path, CONFIG)
    for number in range(100):
        store.append(Outgoing(topic="orders", body=b"%d" % number))
    store.wait_dispatched()

    def first_queues() -> None:
        snapshot = Snapshot.open(path)
        snapshot.queues("orders")

    def scan() -> None:
        list(snapshot.scan(task, spec))

    snapshot, spec = Snapshot.open(path), ScanSpec(columns=("topic", "body"))
    ranges = [QueueRange(each.key, each.min_offset, each.max_offset) for each in snapshot.queues("orders")]
    (task,) = snapshot.plan(ranges, max_bytes=1 << 30)
    return {
        "open, and the first queues()": first_queues,
        "scan of one task": scan,
        "append": lambda: store.append(Outgoing(topic="orders", body=b"x")),
    }


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        for name, journey in journeys(Path(folder) / "store").items():
            journey()
            found = called(journey)
            rooms = Counter(module.rpartition("/")[0] for module, _ in found)
            if "-v" in sys.argv:
                sys.stdout.writelines(f"    {module}: {function}\n" for module, function in sorted(found))
            most = ", ".join(f"{room} {number}" for room, number in rooms.most_common(8))
            sys.stdout.write(f"| {name} | {len(found)} | {most} |\n")


if __name__ == "__main__":
    main()
