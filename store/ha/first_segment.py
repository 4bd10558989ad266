"""First segment of a master, found over the replication port alone.

::

    segments   0   1   2   3   4   5   6 last          0 to 2 expired
    asked      ✗           ✓   .   .                   bisection: a connection per question
                   ✗   ✗   ▲ first

The protocol has no question for it. A master that is asked for bytes it has sends them at once; asked for expired ones,
it sends nothing, or a heartbeat. RocketMQ's slave has no such search: it starts at the last segment.
"""

import time
from collections.abc import Callable
from typing import Final

from .link import Link
from .slave import Slave

_READ_BYTES: Final = 64 << 10


def find_first(is_served: Callable[[int], bool], last: int, segment_bytes: int) -> int:
    """Return the base of the first segment that a master serves.

    Parameters
    ----------
    is_served
        Tells whether the master has bytes of the segment at a base offset. If it has, it has all later ones.
    last
        Base of the last segment, which counts as served.
    segment_bytes
        Size of each segment.
    """
    if is_served(0):
        return 0
    low, high = 1, last // segment_bytes
    while low < high:
        middle = (low + high) // 2
        if is_served(middle * segment_bytes):
            high = middle
        else:
            low = middle + 1
    return high * segment_bytes


def serves(link: Link, base: int, segment_bytes: int, wait_s: float) -> bool:
    """Return whether a master sends bytes of the segment at a base offset within some seconds.

    Parameters
    ----------
    link
        New connection to the master, used for this question only.

    Raises
    ------
    ReplicationError
        If the master closed the connection, or answered with other bytes.
    OSError
        If the connection failed.
    """
    deadline = time.monotonic() + wait_s
    slave = Slave.from_base(base, segment_bytes, time.monotonic())
    link.send_all(slave.report(0, time.monotonic()), wait_s)
    buffer = memoryview(bytearray(_READ_BYTES))
    while (left := deadline - time.monotonic()) > 0 and not slave.is_idle:
        if link.wait(left) and slave.receive(buffer[: link.receive(buffer)], time.monotonic()) is not None:
            return True
    return False
