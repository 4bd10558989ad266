"""The store and the topics that a command line names."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

import segmentlog
from segmentlog.suggestions import unknown_topic

if TYPE_CHECKING:
    from segmentlog.store import QueueBounds, QueueKey, StoreReader


def opened(options: argparse.Namespace) -> "segmentlog.Store":
    """Open the store of `add_store`.

    Raises
    ------
    SegmentLogError
        As of ``segmentlog.open``.
    """
    return segmentlog.open(options.store, commit_log_paths=options.commit_log, read_from=_read_from(options))


def reader_of(options: argparse.Namespace) -> "StoreReader":
    """Open the same store by the interface of the store, for what the Python API does not show.

    Raises
    ------
    SegmentLogError
        As of ``StoreReader.open``.
    """
    from segmentlog.store import ReadFrom, StoreReader

    read_from = ReadFrom(_read_from(options))
    return StoreReader.open(options.store, commit_log_paths=options.commit_log, read_from=read_from)


def _read_from(options: argparse.Namespace) -> str:
    """Return ``--read-from``, which verbs have that print messages by position."""
    found: str = getattr(options, "read_from", "appended")
    return found


def known_topics(reader: "StoreReader", topics: Sequence[str]) -> tuple[str, ...]:
    """Check names of topics, and return each once.

    Raises
    ------
    UnknownQueueError
        If the store does not have one of them, with the one that was probably meant.
    """
    known = reader.topics()
    for topic in topics:
        if topic not in known:
            raise unknown_topic("TOPIC", topic, known, path=reader.path)
    return tuple(dict.fromkeys(topics))


def bounds_of(reader: "StoreReader", topics: Sequence[str]) -> dict["QueueKey", "QueueBounds"]:
    """Return the bounds of all queues of some topics; errors as of `known_topics`."""
    return {bounds.key: bounds for topic in known_topics(reader, topics) for bounds in reader.queues(topic)}
