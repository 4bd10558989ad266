"""Releases of RocketMQ that tests run, and in what they differ: the one table of both."""

from typing import Final, NamedTuple

from segmentlog.store.retention.settings import RocketMQRelease

from .scale import scale

NEWEST: Final = "5.5.1"

STORES: Final = scale((NEWEST, "4.9.1"), (NEWEST, "4.9.1"), (NEWEST, "4.9.1", "5.3.3", "5.1.0", "5.4.0", "5.5.0"))
"""Releases that run on stores without a broker; a quick run of a test has the first one alone.

Where the others differ from their neighbours, tests name them. So all run everywhere only with ``soak``.
"""

BROKERS: Final = scale(("5.5.0", "4.9.1"), ("5.5.0", "4.9.1"), ("5.5.0", "4.9.1", "5.3.3", "5.1.0", "5.4.0"))
"""Whole brokers and clients. 5.5.1 was published without some of their modules. Put it here when it has them."""

RETENTION: Final = {
    NEWEST: RocketMQRelease.V5_3,
    "5.1.0": RocketMQRelease.V5_1,
    "4.9.1": RocketMQRelease.V4_9,
    "5.3.3": RocketMQRelease.V5_3,
}
"""Releases whose retention is compared, with our rules for each."""


class Since(NamedTuple):
    """The first release that does something."""

    major: int
    minor: int
    patch: int

    def holds(self, version: str) -> bool:
        """Tell whether a release does it."""
        return tuple(map(int, version.split("."))) >= self


LONG_TOPICS: Final = Since(5, 0, 0)
"""Reads records of version 2; earlier releases end the log there."""
EMPTY_QUEUES: Final = Since(5, 0, 0)
"""Corrects the first offset of a queue without messages; earlier releases keep 0."""
BOUNDARY: Final = Since(5, 1, 1)
"""Knows LOWER and UPPER for the offset of a time; earlier releases return a message that is near."""
TIMERS: Final = Since(5, 0, 0)
"""Has timers of any delay."""
TRANSACTION_METRICS: Final = Since(5, 3, 3)
"""Saves counts of transactions at an interval; 5.1.0 does not, releases between are unchecked."""
SEARCH: Final = Since(5, 1, 3)
"""Has the filter operators CONTAINS, STARTSWITH and ENDSWITH; earlier releases ignore them."""
RECORD_CRC: Final = Since(5, 2, 0)
"""Writes ``__CRC32#``."""
EMPTY_SEGMENT: Final = Since(5, 2, 0)
"""Loads a store whose last segment has 0 bytes."""
TAG_INDEX: Final = Since(5, 4, 0)
"""Puts the tags of a message into the index."""
