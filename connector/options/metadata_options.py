"""Options of a metadata read: which frame, of which stores, topics and groups.

::

    metadata=lag  consumerGroup=etl  path=/data/store ──► MetadataOptions: kind, group, columns, stores, topics
                                     startingOffsets  ──► an error: it has no meaning here

Stores and topics are named as for reading messages, and without a topic all of them are meant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import ConflictingOptionsError, listing
from .matching import by_option, folded_names, value_of
from .read_options import ReadOptions, parse_read_options
from .read_table import OPTIONS, MetadataKind, Mode
from .write_table import SINK_OPTIONS

_STORES: Final = ("path", "paths", "brokerNames", "commitLogPaths", "queueSource", "columns", "strictOptions")
_TOPICS: Final = ("subscribe", "subscribePattern", "includeSystemTopics")
_OF_TOPICS: Final = frozenset(MetadataKind) - {MetadataKind.SEGMENTS}
_OF_GROUPS: Final = frozenset({MetadataKind.GROUPS, MetadataKind.LAG})


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataOptions:
    """What the user asked for. Crosses to the workers.

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
    """

    kind: MetadataKind
    read: ReadOptions
    consumer_group: str | None
    columns: tuple[str, ...] | None


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
    texts = by_option(given, OPTIONS, elsewhere={"sink": SINK_OPTIONS})
    known = folded_names(OPTIONS)
    kind = value_of(known["metadata"], texts)
    allowed = {"metadata", *_STORES}
    allowed |= set(_TOPICS) if kind in _OF_TOPICS else set()
    allowed |= {"consumerGroup"} if kind in _OF_GROUPS else set()
    strangers = sorted(texts.keys() - allowed)
    if strangers:
        raise ConflictingOptionsError(
            f"option {listing(strangers)} has no meaning with `metadata={kind.value}`",
            fix=f"Leave it out; with it go {listing(sorted(allowed - {'metadata'}), most=20)}",
        )
    places = {name: text for name, text in texts.items() if name in {*_STORES, *_TOPICS} - {"columns", "strictOptions"}}
    if "subscribe" not in places:
        places.setdefault("subscribePattern", ".*")
    read = parse_read_options(places, Mode.BOTH)
    return MetadataOptions(
        kind=kind,
        read=read,
        consumer_group=value_of(known["consumergroup"], texts),
        columns=value_of(known["columns"], texts),
    )
