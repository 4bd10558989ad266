"""The store and the topics that a command line names."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import segmentlog
from segmentlog.query.selection import Topics, check_topics, select
from segmentlog.store import ConfigError

if TYPE_CHECKING:
    from segmentlog.query.source import StoreSource
    from segmentlog.store import QueueBounds, QueueKey, StoreReader


def source_of(options: argparse.Namespace) -> "StoreSource":
    """Return the store of `add_store`; only verbs that print messages by position have ``--read-from``."""
    from segmentlog.query.source import StoreSource

    read_from = getattr(options, "read_from", "appended")
    storage, cache_dir = dict(options.storage), options.cache_dir
    return StoreSource.of(options.store, options.commit_log, None, None, read_from, None, storage, cache_dir)


def opened(options: argparse.Namespace) -> "segmentlog.Store":
    """Open the store of `add_store`."""
    return segmentlog.open(
        options.store,
        commit_log_paths=options.commit_log,
        storage=dict(options.storage),
        cache_dir=options.cache_dir,
    )


def known_topics(reader: "StoreReader", topics: Sequence[str]) -> tuple[str, ...]:
    """Check names of topics, and return each once."""
    check_topics(topics, reader.topics(), path=reader.path, argument="TOPIC")
    return tuple(dict.fromkeys(topics))


def bounds_of(reader: "StoreReader", topics: Sequence[str]) -> dict["QueueKey", "QueueBounds"]:
    """Return the bounds of all queues of some topics."""
    ((_, queues),) = select([reader], Topics(tuple(dict.fromkeys(topics))), argument="TOPIC")
    return {bounds.key: bounds for bounds in queues}


def read_conf(path: str) -> str:
    """Read the file that ``--config`` names."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"--config: the broker's configuration cannot be read: {found}",
            path=path,
            fix="Pass the file that the broker was started with (`mqbroker -c FILE`)",
        ) from error
