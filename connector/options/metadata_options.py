"""Options of a metadata read: which frame, of which stores, topics and groups.

::

    metadata=lag  consumerGroup=etl  path=/data/store ──► MetadataOptions: kind, group, columns, stores, topics
                                     startingOffsets  ──► an error: it has no meaning here

Stores and topics are named as for reading messages, and without a topic all of them are meant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from segmentlog.query.position import AtTime
from segmentlog.query.suggestions import listing
from segmentlog.query.system_topics import SystemWindow

from ..errors import ConflictingOptionsError, MissingOptionError
from .matching import match
from .option import STRICT_OPTIONS, Mode, Table
from .read_options import ReadOptions, assemble
from .read_table import SOURCE, MetadataKind
from .write_table import SINK

_STORES: Final = SOURCE.pick(
    *("path", "paths", "brokerNames", "commitLogPaths", "archive", "queueSource", "queueCache"),
    *("storage.NAME", "cacheDir", "cacheBytes"),
)
_TOPICS: Final = SOURCE.pick("subscribe", "subscribePattern", "includeSystemTopics")
_NAMED: Final = SOURCE.pick("subscribe", "subscribePattern")
_TIMES: Final = SOURCE.pick("startingTimestamp", "endingTimestamp", "timeZone")
OF_SYSTEM_TOPICS: Final = frozenset({MetadataKind.DELAYED, MetadataKind.TRANSACTIONS, MetadataKind.TRACE})
"""Frames of messages that RocketMQ keeps in topics of its own."""
_OF_GROUPS: Final = frozenset({MetadataKind.GROUPS, MetadataKind.LAG})


def _table(kind: MetadataKind) -> Table:
    topics = () if kind is MetadataKind.SEGMENTS else _TOPICS
    groups = SOURCE.pick("consumerGroup") if kind in _OF_GROUPS else ()
    times = _TIMES if kind in OF_SYSTEM_TOPICS else ()
    always = (*_STORES, *SOURCE.pick("metadata", "columns"), STRICT_OPTIONS)
    return Table(f"frame `metadata={kind.value}`", (*always, *topics, *groups, *times))


METADATA: Final[Mapping[MetadataKind, Table]] = {kind: _table(kind) for kind in MetadataKind}
"""The options of each frame: handles of the source that have a meaning for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataOptions:
    """The options of a metadata read, parsed. Crosses to the workers.

    Attributes
    ----------
    kind
        Which frame.
    read
        Which stores and topics, as of a read of messages.
    consumer_group
        The group that rows are asked of; None for all.
    columns
        The option ``columns``.
    window
        Real topics and store times of a frame of system topics.
    """

    kind: MetadataKind
    read: ReadOptions
    consumer_group: str | None
    columns: tuple[str, ...] | None
    window: SystemWindow


def wants_metadata(given: Mapping[str, str]) -> bool:
    """Tell whether options ask for metadata, and not for messages."""
    return any(name.lower() == "metadata" for name in given)


def parse_metadata_options(given: Mapping[str, str]) -> MetadataOptions:
    """Parse the options of a metadata read.

    Parameters
    ----------
    given
        Option texts by name, names in any case; what Spark adds of its own may be among them.

    Raises
    ------
    ConflictingOptionsError
        If one of them has no meaning for this frame.
    MissingOptionError, UnknownOptionError, ConfigError
        As `parse_read_options`.
    """
    found = match(given, SOURCE, elsewhere=(SINK,))
    (asked,) = SOURCE.pick("metadata")
    kind: MetadataKind | None = found[asked]
    if kind is None:
        raise MissingOptionError("option `metadata` is not there", fix="Add .option('metadata', 'topics')")
    table = METADATA[kind]
    strangers = sorted(option.name for option in found.of(SOURCE) if option not in table)
    if strangers:
        raise ConflictingOptionsError(
            f"option {listing(strangers)} has no meaning with `metadata={kind.value}`",
            fix=f"Leave it out; with it go {listing(sorted(set(table.names()) - {asked.name}), most=20)}",
        )
    places = found.only((*_STORES, *_TOPICS, *_TIMES))
    has_topics = bool(places.of(_NAMED))
    if not has_topics:
        places = places.also(_NAMED[1], ".*")
    group, columns = SOURCE.pick("consumerGroup", "columns")
    read = assemble(places, Mode.BATCH)
    start_ms, stop_ms = (place.ms if isinstance(place, AtTime) else None for place in (read.start, read.stop))
    return MetadataOptions(
        kind=kind,
        read=read,
        consumer_group=found[group],
        columns=found[columns],
        window=SystemWindow(topics=read.topics if has_topics else None, start_ms=start_ms, stop_ms=stop_ms),
    )
