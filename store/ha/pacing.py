"""Pacing of a replica: pauses between connections, and a limit on the bytes per second.

::

    failure   1    2    3      4          5                 … 30 s, each with jitter: replicas of one master spread out
    Backoff   ├─┤  ├──┤ ├────┤ ├────────┤ ├────────────────┤
    success   the next failure begins at the first pause again

    TokenBucket   fills with `rate` bytes per second, holds one second's worth; `take` empties it

RocketMQ has neither: its slave connects again after 5 s, and limits nothing.
"""

import random
from typing import Final

FIRST_S: Final = 0.25
"""Mean of the first pause in seconds."""
LONGEST_S: Final = 30.0
"""Largest mean of a pause in seconds."""


class Backoff:
    """Pauses that double. Not thread-safe.

    Parameters
    ----------
    draw
        Source of the jitter.
    """

    def __init__(self, draw: random.Random | None = None) -> None:
        self._draw = draw or random.Random()  # noqa: S311 - it spreads pauses, and keeps no secret
        self._mean_s = FIRST_S

    def next_s(self) -> float:
        """Return the seconds to pause now: from half of the mean to one and a half of it."""
        mean_s = self._mean_s
        self._mean_s = min(2 * mean_s, LONGEST_S)
        return mean_s * self._draw.uniform(0.5, 1.5)

    def reset(self) -> None:
        """Begin at the first pause again."""
        self._mean_s = FIRST_S


class TokenBucket:
    """Bytes that may be received now. Not thread-safe.

    Parameters
    ----------
    rate
        Bytes per second; None for no limit.
    now
        Time in seconds, of any monotonic clock; that of every call.
    """

    def __init__(self, rate: int | None, now: float) -> None:
        self._rate = rate
        self._level = float(rate or 0)
        self._at = now

    def allowed(self, most: int, now: float) -> int:
        """Return how many bytes may be received now, at most ``most``."""
        if self._rate is None:
            return most
        self._level = min(self._level + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        return max(min(int(self._level), most), 0)

    def take(self, size: int) -> None:
        """Count bytes that were received."""
        self._level -= size

    def wait_s(self, size: int) -> float:
        """Return the seconds until ``size`` bytes may be received; a second's worth if that is less."""
        if self._rate is None:
            return 0.0
        return max(min(size, self._rate) - self._level, 0.0) / self._rate
