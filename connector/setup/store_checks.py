"""Checks of a store directory: whether a reader opens it, how much is in it, and the process that has it open.

::

    STORE/commitlog, consumequeue, …   opened as any reader does, without a lock
    STORE/abort                        there while a broker runs, and after one was killed
    STORE/lock                         byte 0 is locked by the process that runs on the store, byte 8 by one of ours
"""

import os
import subprocess
import sys
from pathlib import Path

from .checks import Check, Status

_PROBE_SECONDS_MAX = 60


def check_store(path: str) -> Check:
    """Open a store as a reader does, and measure its content."""
    try:
        from segmentlog.store import SegmentLogError, StoreReader  # noqa: PLC0415 - needs numpy and pyarrow
    except ImportError as error:
        found = f"cannot be opened: {error}"
        return Check("store", Status.FAIL, found, "See the failed checks above")
    try:
        reader = StoreReader.open(path)
        topics = reader.topics()
        queues = sum(len(reader.queues(topic)) for topic in topics)
    except (SegmentLogError, OSError) as error:
        fix = str(getattr(error, "fix", None) or "Check the path and its permissions")
        return Check("store", Status.FAIL, str(error), fix)
    size_bytes, disk_bytes = _tree_bytes(path)
    found = f"{len(topics)} topics, {queues} queues, {_human(size_bytes)} ({_human(disk_bytes)} on disk)"
    return Check("store", Status.OK, found)


def check_owner(path: str) -> Check:
    """Check whether a broker runs on a store, or was killed on it. Takes no lock."""
    was_killed_or_runs = (Path(path) / "abort").exists()
    try:
        owner = _lock_owner(Path(path) / "lock")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        found = f"cannot be told: {error}"
        return Check("owner", Status.WARN, found)
    if owner is not None:
        return Check("owner", Status.OK, f"{owner} has it open; reading beside it is safe")
    if was_killed_or_runs:
        fix = "Nothing to do for reading; the last record may be cut off, which the broker's next start mends"
        return Check("owner", Status.WARN, "abort file, but no process: it was killed", fix)
    return Check("owner", Status.OK, "no process; it was shut down cleanly")


_LOCK_PROBE = """\
import fcntl, os, struct, sys
layout = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, process
file = os.open(sys.argv[1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
for byte in (0, 8):
    asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _, _, _, owner = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    if kind != fcntl.F_UNLCK:
        print(f"process {owner}" if owner > 0 else "another process")
        break
"""


def _lock_owner(lock: Path) -> str | None:
    """Ask the kernel for the owner of byte 0 of ``lock``, as RocketMQ has it, or of byte 8, as only we do.

    Another process asks: closing a file drops all locks that the closing process holds on it, and this process may be
    the store's own writer.
    """
    if not lock.exists():
        return None
    if not sys.platform.startswith("linux"):
        raise OSError(f"locks of other processes cannot be asked for on {sys.platform}")
    answer = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-I", "-c", _LOCK_PROBE, str(lock)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS_MAX,
    )
    return answer.stdout.strip() or None


def _tree_bytes(path: str) -> tuple[int, int]:
    """Add up the files under ``path``: their length, and what they take on the device (segments are often sparse)."""
    size_bytes = disk_bytes = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:
                continue  # a live broker removes files
            size_bytes += status.st_size
            disk_bytes += 512 * status.st_blocks
    return size_bytes, disk_bytes


def _human(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
