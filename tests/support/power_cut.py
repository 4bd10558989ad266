"""A power cut under a store that was kept in the page cache, as its files are when another kernel has started.

::

    .segmentlog/cached    names a kernel that does not run any more
    CommitLog             [records on the device][records that came to it by chance][00000000 …
                                                                                    ▲ from_offset
    ConsumeQueue          [e0][e1][00][00] …     without the entries of records after the durable point

In-flight marker, ledger and topics are synced by each commit, and stay.
"""

from pathlib import Path

import numpy as np

from segmentlog.store.directory.own_state import OwnState
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.consume_queue import ENTRY_BYTES, decode

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def cut_power(path: Path, from_offset: int, *, with_queues: bool = False) -> None:
    """Take what is not on the device from a physical offset on, and let another kernel run.

    Parameters
    ----------
    path
        Store directory, which no process has open.
    with_queues
        Whether the queues lose everything that was not synced.
    """
    cached = path / ".segmentlog" / "cached"
    cached.write_bytes(cached.read_bytes().replace(_BOOT_ID.read_bytes()[:36], b"-" * 36))
    for segment in (path / "commitlog").iterdir():
        _zero(segment, max(from_offset - int(segment.name), 0))
    found = OwnState.read(LocalFileSystem(), str(path), is_signed=True).point
    assert found is not None
    for file in (path / "consumequeue").glob("*/*/*") if with_queues else ():
        data = file.read_bytes()
        lost = np.flatnonzero(decode(data)["physical_offset"] >= found.log)
        if lost.size:
            _zero(file, int(lost[0]) * ENTRY_BYTES)


def _zero(file: Path, position: int) -> None:
    """Overwrite the rest of a file in place: it may be mapped."""
    rest = file.stat().st_size - position
    if rest > 0:
        with file.open("r+b") as opened:
            opened.seek(position)
            opened.write(bytes(rest))
