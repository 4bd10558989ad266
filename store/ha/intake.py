"""Intake of a replica: takes what the master sends in pieces that are large enough to be handled together.

::

    bytes that were waited for         ──► handled at once: the master may be waiting for the report
    bytes that came while others were  ──► gathered, for 10 ms at most, and until 1 ms brings nothing:
    handled                                the master sends on without a report

    connection ──► one buffer of 4 MiB ──► view ──► frames ──► records

A piece costs some 1 ms beside its bytes, so a thousand small ones per second would take a whole core. RocketMQ:
``HAClient.processReadEvent``, which handles each read.
"""

import time
from typing import Final

from .link import Link

BUFFER_BYTES: Final = 4 << 20
_GATHER_S: Final = 0.01
_STEP_S: Final = 0.001


class Intake:
    """Receives the bytes of one link. Not thread-safe.

    Parameters
    ----------
    link
        Link to the master.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def read(self, most: int, wait_s: float) -> memoryview | None:
        """Return the next bytes, at most ``most``; None if nothing came in time.

        Returns
        -------
        memoryview
            View of the buffer, valid until the next call.

        Raises what `Link.receive` does.
        """
        view = self._buffer[:most]
        got = self._link.receive(view)
        if got:
            got = self._gathered(view, got)
        elif self._link.wait(wait_s):
            got = self._link.receive(view)
        return view[:got] if got else None

    def _gathered(self, view: memoryview, got: int) -> int:
        stop = time.monotonic() + _GATHER_S
        while got < len(view) and time.monotonic() < stop:
            time.sleep(_STEP_S)
            more = self._link.receive(view[got:])
            if not more:
                break
            got += more
        return got
