"""Run as a program: reads the stores that the lines of stdin name, and says on stdout what it met and what it opened.

In a process of its own, since an audit hook cannot be taken out again, and a reader that hangs must not hang the tests.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pyarrow as pa

from segmentlog.store import NATIVE_SCHEMA, OnCorrupt, QueueKey, QueueRange, ScanSpec, SegmentLogError, Snapshot
from segmentlog.store.groups import group_offsets

CPU_SECONDS = 2
WALL_SECONDS = 30  # for what sleeps, such as opening a FIFO; long, as the machine may be busy

pa.array([])  # loads pandas, if there is one, and that the machine's time zones: no store made us open them

opened: list[tuple[str, bool]] = []
listening = False


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what is opened, and whether a link at the end of its path would be followed."""
    if listening and event == "open":
        path, mode, flags = arguments
        opened.append((os.fsdecode(path), mode is not None or not flags & os.O_NOFOLLOW))
    if listening and event in {"os.scandir", "os.listdir"}:
        opened.append((os.fsdecode(arguments[0]), True))


def escaped(root: str) -> list[str]:
    """Return the files opened outside of a directory, except for modules of Python."""
    outside = []
    allowed = (sys.base_prefix + os.sep, sys.prefix + os.sep)
    real_root = os.path.realpath(root.replace("\0", "0"))  # there is no such root, and nothing can be opened there
    for path, follows in opened:
        parent, name = os.path.split(path)
        real = os.path.realpath(path) if follows else os.path.join(os.path.realpath(parent), name)
        if real != real_root and not real.startswith(real_root + os.sep) and not path.startswith(allowed):
            outside.append(path)
    return outside


@contextmanager
def limited() -> Iterator[None]:
    def stop(number: int, _: object) -> NoReturn:
        raise TimeoutError(f"hangs ({signal.Signals(number).name})")

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def read_all(case: dict[str, Any]) -> dict[str, Any]:
    snapshot = Snapshot.open(case["store"], commit_log_paths=case.get("commit_log_paths", ()))
    ranges = [
        QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
        for topic in snapshot.topics()
        for bounds in snapshot.queues(topic)
    ]
    spec = ScanSpec(columns=tuple(NATIVE_SCHEMA.names), check_crc=True, on_corrupt=OnCorrupt.NULL)
    rows = [batch.num_rows for task in snapshot.plan(ranges, max_bytes=100_000) for batch in snapshot.scan(task, spec)]
    keys = [QueueKey(topic, queue_id) for topic, queue_id in case.get("keys", ())]
    keys += group_offsets(snapshot.path, "group")
    return {"topics": snapshot.topics(), "rows": sum(rows), "asked": [ask(snapshot, key) for key in keys]}


def ask(snapshot: Snapshot, key: QueueKey) -> dict[str, Any]:
    """Ask for one queue that may not be there."""
    try:
        bounds = snapshot.bounds(key)
        snapshot.offset_at(key, 0)
        snapshot.plan([QueueRange(key, bounds.min_offset, bounds.max_offset)], max_bytes=100_000)
    except SegmentLogError as error:
        return {"key": str(key), "error": type(error).__name__, "text": str(error)}
    return {"key": str(key), "rows": len(bounds)}


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    global listening  # noqa: PLW0603 - the hook stays for good, so it has a switch
    opened.clear()
    try:
        with limited():
            listening = True
            try:
                found = read_all(case)
            finally:
                listening = False
    except SegmentLogError as error:
        found = {"error": type(error).__name__, "text": str(error), "path": error.path}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        found = {"error": type(error).__name__, "text": str(error), "path": None}
    return {**found, "name": case["name"], "escaped": escaped(case["store"])}


def main() -> None:
    read_all(json.loads(sys.stdin.readline()))  # what is imported when first needed is imported now
    if "--nobody" in sys.argv:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    sys.addaudithook(audit)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(outcome(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
