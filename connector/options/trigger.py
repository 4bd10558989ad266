"""Limits of a micro-batch, as the options of a stream state them.

::

    maxOffsetsPerTrigger  maxBytesPerTrigger    upper limits: the first that is reached ends the batch
    minOffsetsPerTrigger  maxTriggerDelay       lower limit: the batch waits for so many messages, or for so long
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerLimits:
    """How large a micro-batch may be, and what it waits for.

    Attributes
    ----------
    max_records, max_bytes
        The most messages and stored bytes; None for no limit.
    min_records, max_delay_ms
        Wait for so many messages, but no longer than that; None to take what there is.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    min_records: int | None = None
    max_delay_ms: int = 15 * 60_000
