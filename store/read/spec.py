"""Scan specification: columns, predicate and the treatment of damage and loss.

::

    ScanSpec ── columns, property_columns ──► what a row holds
             ├─ predicate ─┬─ store times, physical offsets
             │             ├─ filter:  Tags                by hash in the ConsumeQueue, then exactly
             │             │           PropertyFilter      by the record's properties (SQL92)
             │             └─ bodies:  BodyFilter          by the inflated bodies, before other columns are decoded
             └─ on_corrupt, on_loss ──► an error, or a gap

A specification is small and picklable: it crosses to Spark's workers. RocketMQ: ``SubscriptionData``.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from ..errors import ConfigError
from ..format.message import Mask
from ..format.message_decode import QUEUE_COLUMNS

BATCH_BYTES: Final = 8 << 20
"""Default size of a record batch, in bytes."""
BATCH_ROWS: Final = 1 << 16
"""Default limit of rows in a record batch."""
MAX_BODY_BYTES: Final = 16 << 20
"""Default limit of one inflated body, in bytes: four times RocketMQ's ``maxMessageSize``."""
_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
"""Characters that Java's ``String.trim`` removes."""


class OnCorrupt(Enum):
    """Treatment of a damaged record."""

    FAIL = "fail"
    SKIP = "skip"
    NULL = "null"
    """Its row stays, with nulls in every column that comes from the record."""


class OnLoss(Enum):
    """Treatment of messages that were planned and are gone when they are read."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Tags:
    """Filter by tag (RocketMQ: ``ExpressionType.TAG``).

    Attributes
    ----------
    any_of
        A message matches if its tag is one of these. A message without a tag never matches.
    """

    any_of: frozenset[str]

    @classmethod
    def parse(cls, expression: str) -> "Tags | None":
        """Read a tag expression as RocketMQ does (``FilterAPI``).

        Parameters
        ----------
        expression
            Such as ``A || B``. Empty parts are ignored. If all parts are blank, no message matches.

        Returns
        -------
        Tags or None
            None for all messages: ``*``, or no text.

        Raises
        ------
        ConfigError
            If the text is ``||`` alone, which RocketMQ refuses, or has ``*`` beside others, which it takes for a tag.
        """
        tags = frozenset(part.strip(_BLANKS) for part in expression.split("||"))
        if not expression or expression.strip(_BLANKS) == "*":
            return None
        if "*" in tags or not expression.replace("||", ""):
            raise ConfigError(
                f"tags={expression!r} has no tag, or `*` beside others", fix="Pass 'A || B', or '*' for all messages"
            )
        return cls(tags - {""})


class PropertyFilter(Protocol):
    """Filter by message properties, such as a compiled SQL92 expression (RocketMQ: ``ExpressionType.SQL92``).

    An implementation is immutable and picklable, and compares equal to another one of the same meaning.
    """

    @property
    def columns(self) -> frozenset[str]:
        """Names of the properties that `mask` reads, such as ``TAGS`` or a user's own."""

    def mask(self, properties: pa.RecordBatch) -> Mask:
        """Evaluate the filter for some messages.

        Parameters
        ----------
        properties
            One nullable string column per name in `columns`, in sorted order; null where a message lacks the property.
            It has n rows even where `columns` is empty.

        Returns
        -------
        (n,) bool
            True where a message matches; SQL's unknown is False.
        """


Filter: TypeAlias = Tags | PropertyFilter


class BodyFilter(Protocol):
    """Filter by message bodies. An implementation is immutable and picklable."""

    def matches(self, bodies: pa.BinaryArray) -> pa.BooleanArray:
        """Return which of some bodies match, null for no match; no body is null."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicate:
    """Condition on messages of the planned ranges; all parts must hold.

    Attributes
    ----------
    filter
        By tag or by properties; None for all messages.
    bodies
        By bodies as a scan returns them: inflated, unless ``raw_body``. The first is evaluated first.
    store_time_start, store_time_stop
        Store timestamp in ms, half-open.
    """

    filter: Filter | None = None
    bodies: tuple[BodyFilter, ...] = ()
    store_time_start: int | None = None
    store_time_stop: int | None = None

    @property
    def reads_records(self) -> bool:
        """True if some part needs the record itself, since the ConsumeQueue does not tell."""
        times = self.store_time_start, self.store_time_stop
        return self.filter is not None or bool(self.bodies) or times != (None, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanSpec:
    """Content and limits of a scan's record batches.

    Attributes
    ----------
    columns
        Names from ``NATIVE_SCHEMA``, in output order.
    property_columns
        Single properties as further string columns, after ``columns``.
    predicate
        Condition on messages.
    check_crc
        Whether body CRCs, and ``__CRC32#`` where a record has it, are compared.
    on_corrupt, on_loss
        Treatment of damaged and of missing messages.
    raw_body
        Whether compressed bodies are returned as stored.
    max_body_bytes
        Limit of one inflated body.
    batch_bytes, batch_rows
        Limits of a record batch; a single larger message still makes a batch.
    """

    columns: tuple[str, ...]
    property_columns: tuple[str, ...] = ()
    predicate: Predicate = field(default_factory=Predicate)
    check_crc: bool = False
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    on_loss: OnLoss = OnLoss.FAIL
    raw_body: bool = False
    max_body_bytes: int = MAX_BODY_BYTES
    batch_bytes: int = BATCH_BYTES
    batch_rows: int = BATCH_ROWS

    @property
    def reads_bodies(self) -> bool:
        """True if bodies are returned or compared."""
        return "body" in self.columns or bool(self.predicate.bodies)

    @property
    def entries_only(self) -> bool:
        """True if ConsumeQueue entries hold all that is asked for, so that the CommitLog is never opened."""
        return (
            QUEUE_COLUMNS.issuperset(self.columns)
            and not self.property_columns
            and not self.check_crc
            and not self.predicate.reads_records
        )
