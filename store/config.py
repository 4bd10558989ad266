"""Configuration of a store that is open for writing: choices as types, defaults in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum, EnumMeta
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin

from .errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

E = TypeVar("E", bound=Enum)
_WORDS: Final[Mapping[object, str]] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "None",
    tuple: "a list of texts",
    Mapping: "a mapping of texts to whole numbers",
}
"""Types of fields, as `check_fields` names them."""


def choice(argument: str, value: object, kind: type[E]) -> E:
    """Return a member of an enum, passed as it is or by its value; otherwise a `ConfigError` lists the values."""
    try:
        return kind(value)
    except ValueError:
        values = ", ".join(repr(each.value) for each in kind)
        raise ConfigError(f"{argument}={value!r} is unknown", fix=f"Pass one of {values}") from None


def check_fields(config: "DataclassInstance") -> None:
    """Turn values of enums into members, and raise a `ConfigError` for a field of another type than its annotation."""
    for each in fields(config):
        value: object = getattr(config, each.name)
        if isinstance(each.type, EnumMeta):
            object.__setattr__(config, each.name, choice(each.name, value, each.type))
        elif not _fits(value, each.type):
            kinds = get_args(each.type) if isinstance(each.type, UnionType) else (each.type,)
            words = (_WORDS.get(get_origin(kind) or kind) or f"a {kind.__name__}" for kind in kinds)
            raise ConfigError(f"{each.name}={value!r} is a {type(value).__name__}", fix=f"Pass {' or '.join(words)}")


def _fits(value: object, kind: Any) -> bool:
    """Tell whether a value is of a type: a list of texts is a tuple, too, and a whole number a float."""
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(_fits(each, get_args(kind)[0]) for each in value)
    if get_origin(kind) is Mapping:
        return isinstance(value, Mapping) and all(all(map(_fits, pair, get_args(kind))) for pair in value.items())
    return isinstance(value, int | float if kind is float else kind) and (kind is bool or not isinstance(value, bool))


class Flush(Enum):
    """When an append is acknowledged."""

    SYNC = "sync"
    """When it is on the device; all that wait share one sync."""
    ASYNC = "async"
    """When it is in the page cache; a timer syncs."""


class Services(Enum):
    """Background work: flushing, dispatching and pre-allocating the next segment."""

    BACKGROUND = "background"
    """Threads of the store."""
    ON_CALL = "on-call"
    """The caller, within the calls it makes and by ``tick``."""


class BatchPlacement(Enum):
    """Placement of the rows of a batch in segments."""

    RUN_ON = "run-on"
    """One after the other, over the ends of segments."""
    ONE_SEGMENT = "one-segment"
    """All in one segment, as RocketMQ places the messages of a client's batch."""


class OnChangedReplay(Enum):
    """Treatment of a batch that is repeated with another number of rows than were committed."""

    FAIL = "fail"
    """The commit raises `ChangedReplayError`; nothing is appended."""
    SKIP = "skip"
    """The committed rows count, the repeated rows are not appended; logged as a warning."""


class OnDamage(Enum):
    """Treatment of a CommitLog with damage in its middle on open."""

    REFUSE = "refuse"
    """The store is not opened; nothing was changed."""
    CUT = "cut"
    """The log ends where the damage begins, as in RocketMQ; whole records after it are lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig:
    """Write configuration of a store. File sizes are stored in no file of RocketMQ: configure a broker with the same.

    Attributes
    ----------
    segment_bytes
        Size of a CommitLog segment (``mappedFileSizeCommitLog``).
    queue_segment_entries
        Entries of one ConsumeQueue file (``mappedFileSizeConsumeQueue`` / 20).
    index_slots, index_entries
        How an index file is divided (``maxHashSlotNum``, ``maxIndexNum``).
    index
        Whether keys are indexed (``messageIndexEnable``).
    flush
        When an append is acknowledged: ``"sync"`` or ``"async"`` (``flushDiskType``; RocketMQ's own default is ASYNC).
    flush_interval_ms, flush_least_pages, flush_thorough_interval_ms
        ASYNC: how often the log is synced, if so many 4 KiB pages are waiting, and how often at any rate.
    queue_flush_interval_ms, queue_flush_log_bytes, queue_flush_thorough_interval_ms
        How often queues and index are synced, if so many bytes of log were dispatched since, and how often at any rate.
        After a crash, so many bytes of log are dispatched again.
    max_body_bytes
        The largest body (``maxMessageSize``).
    record_crc
        Whether records carry ``__CRC32#``, which covers the whole record (``enabledAppendPropCRC``).
    compress_over_bytes
        Bodies of at least this size are deflated; None leaves all as they are.
    store_host
        What records state as their broker's address, as ``ip:port``.
    services
        Whether background threads or `MessageStore.tick` do the background work.
    """

    segment_bytes: int = 1 << 30
    queue_segment_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    index: bool = True
    flush: Flush = Flush.SYNC
    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    queue_flush_interval_ms: int = 1_000
    queue_flush_log_bytes: int = 1 << 30
    queue_flush_thorough_interval_ms: int = 60_000
    max_body_bytes: int = 4 << 20
    record_crc: bool = True
    compress_over_bytes: int | None = None
    store_host: str = "127.0.0.1:10911"
    services: Services = Services.BACKGROUND

    def __post_init__(self) -> None:
        check_fields(self)
        for name, least in (
            ("segment_bytes", 1 << 10),
            ("queue_segment_entries", 1),
            ("index_slots", 1),
            ("index_entries", 2),
            ("max_body_bytes", 0),
        ):
            number = getattr(self, name)
            if not least <= number < 1 << 31:
                raise ConfigError(f"{name} is {number!r}", fix=f"Pass a number from {least} to {(1 << 31) - 1}")
