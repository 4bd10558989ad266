"""Limits of a micro-batch, as the options of a stream state them.

::

    maxOffsetsPerTrigger  maxBytesPerTrigger    upper limits: the first that is reached ends the batch
    minOffsetsPerTrigger  maxTriggerDelay       lower limit: the batch waits for so many messages, or for so long
"""

from dataclasses import dataclass
from typing import Final

from ..errors import ConflictingOptionsError
from . import values
from .option import COUNT, SIZE, Given, Mode, Option, Table

TRIGGER: Final = Table("source")

MAX_OFFSETS_PER_TRIGGER: Final = TRIGGER.add(
    Option(
        name="maxOffsetsPerTrigger",
        value=COUNT,
        parse=values.positive,
        default=None,
        mode=Mode.STREAM,
        meaning="The most messages of one micro-batch. Queues share it by what waits in each, with at least one "
        "message per queue as far as it goes.",
    )
)
MAX_BYTES_PER_TRIGGER: Final = TRIGGER.add(
    Option(
        name="maxBytesPerTrigger",
        value=SIZE,
        parse=values.size,
        default=None,
        mode=Mode.STREAM,
        meaning="The most stored bytes of one micro-batch, but at least one message; with `maxOffsetsPerTrigger`, "
        "whichever is reached first.",
    )
)
MIN_OFFSETS_PER_TRIGGER: Final = TRIGGER.add(
    Option(
        name="minOffsetsPerTrigger",
        value=COUNT,
        parse=values.positive,
        default=None,
        mode=Mode.STREAM,
        meaning="Wait until so many messages are there, or `maxTriggerDelay` has passed. Not with AvailableNow.",
    )
)
MAX_TRIGGER_DELAY: Final = TRIGGER.add(
    Option(
        name="maxTriggerDelay",
        value="a duration with its unit: 15m, 30s, 500ms",
        parse=values.duration_ms,
        default=15 * 60_000,
        default_text="15m",
        mode=Mode.STREAM,
        meaning="The longest that `minOffsetsPerTrigger` makes messages wait.",
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerLimits:
    """Limits of a micro-batch: how large it may be, and what it waits for.

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


def trigger_limits(given: Given) -> TriggerLimits:
    """Return the limits that options state.

    Raises
    ------
    ConflictingOptionsError
        If a batch would have to be larger than it may be.
    """
    least, most = given[MIN_OFFSETS_PER_TRIGGER], given[MAX_OFFSETS_PER_TRIGGER]
    if least is not None and most is not None and least > most:
        problem = f"`minOffsetsPerTrigger` ({least}) is more than `maxOffsetsPerTrigger` ({most})"
        raise ConflictingOptionsError(problem, fix="Make it at most as many, or leave one of them out")
    return TriggerLimits(
        max_records=most,
        max_bytes=given[MAX_BYTES_PER_TRIGGER],
        min_records=least,
        max_delay_ms=given[MAX_TRIGGER_DELAY],
    )
