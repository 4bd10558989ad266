"""Functions of the project that a journey calls, each counted once: how long the way through the code is.

::

    python benchmarks/journeys.py            a table: journey, functions, packages of the store that they are in
"""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path

from segmentlog.store import MessageStore, Outgoing, QueueRange, ScanSpec, Snapshot, StoreConfig

PACKAGE = f"{os.sep}segmentlog{os.sep}"
CONFIG = StoreConfig(segment_bytes=1 << 20)


def called(journey: Callable[[], object]) -> set[tuple[str, str]]:
    """Run a journey; return its functions as module and qualified name."""
    profile = Profile()
    profile.runcall(journey)
    codes = [entry.code for entry in profile.getstats() if not isinstance(entry.code, str)]
    ours = [(code.co_filename.rpartition(PACKAGE), code.co_qualname) for code in codes]
    return {(path, name) for (_, package, path), name in ours if package and not name.endswith(">")}


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
