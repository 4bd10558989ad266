"""Topic table of a store, ``config/topics.json``: the topics and queue numbers that a broker announces to clients.

::

    append to a new topic ──► queues and index synced ──► note(ends) ──► topics.json   (the former one as .bak)

The store itself does not need the document, since queues exist by their directories. A broker that is started on the
store needs it for its clients' routes. Entries and fields that are unknown here stay. RocketMQ: ``TopicConfigManager``.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable
from typing import Final

from ..errors import FileTooLargeError, FormatError, MissingExtraError, UnsupportedStoreError
from ..files.notices import warn_once
from ..files.small_file import DOCUMENT_BYTES_MAX, read_whole
from ..files.writable_fs import WritableFileSystem
from ..format.documents import Document
from ..format.naming import LMQ_PREFIX, is_broker_topic
from ..format.store_paths import StorePaths
from ..types import QueueKey
from .documents import load_document, replace_document
from .layout import StoreLocation, list_batch_topics, list_compacted_topics
from .rocksdb_config import TOPICS, load_config

DEFAULT_QUEUES = 8
"""Queues of a topic that a broker creates: ``BrokerConfig.defaultTopicQueueNums``."""
_BATCH_TYPE: Final = "BatchCQ"
_log = logging.getLogger(__name__)


class TopicTable:
    """The topics of one store that is open for writing."""

    def __init__(self, fs: WritableFileSystem, paths: StorePaths) -> None:
        self._fs = fs
        self._path = paths.topics
        self._making = paths.making_topics
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}  # queues of each topic that the document is known to have

    def note(self, keys: Iterable[QueueKey]) -> None:
        """Add topics and queues that the document lacks. Thread-safe."""
        with self._lock:
            self._note(keys)

    def _note(self, keys: Iterable[QueueKey]) -> None:
        queues: dict[str, int] = {}
        for key in keys:
            queues[key.topic] = max(queues.get(key.topic, 0), key.queue_id + 1)
        wanted = {
            topic: count
            for topic, count in queues.items()
            if count > self._seen.get(topic, 0)
            and not is_broker_topic(topic)
            and not topic.startswith(LMQ_PREFIX)  # a light queue is of no topic that producers know
        }
        if not wanted:
            return
        try:
            self._add(wanted)
        except (FormatError, FileTooLargeError) as error:
            _log.warning("%s stays as it is, new topics are not added to it: %s", self._path, error)
        self._seen |= wanted

    def _add(self, wanted: dict[str, int]) -> None:
        loaded = load_document(self._fs, self._path, lambda found: found)
        table = loaded.document.setdefault("topicConfigTable", {})
        if not isinstance(table, dict):
            raise FormatError("topicConfigTable is not an object", path=self._path)
        changed = False
        for topic, count in wanted.items():
            entry = table.setdefault(topic, _entry(topic))
            if not isinstance(entry, dict):
                raise FormatError(f"the entry of topic {topic} is not an object", path=self._path)
            for name in ("readQueueNums", "writeQueueNums"):
                held = entry.get(name)
                if not isinstance(held, int) or held < count:
                    entry[name] = count
                    changed = True
        if changed:
            replace_document(self._fs, self._path, loaded, self._making)


def topic_queues(path: str | os.PathLike[str]) -> dict[str, int]:
    """Number of queues that producers write to, per topic, as ``topics.json`` has it; errors as `group_offsets`."""
    return {topic: count for topic, count in topic_table(StoreLocation.of(path)).items() if count > 0}


def topic_table(location: StoreLocation) -> dict[str, int]:
    """All topics as `topic_queues`; 0 where no sensible number of queues is stated.

    Topics that a broker keeps in RocksDB are left out without the extra ``rocksdb``, with a warning: messages can be
    read without them.
    """
    counts = {topic: entry.get("writeQueueNums") for topic, entry in _entries(location).items()}
    return {topic: count if isinstance(count, int) and count > 0 else 0 for topic, count in counts.items()}


def batch_topics(location: StoreLocation) -> set[str]:
    """Topics with ``queue.type=BatchCQ``; a broker does not start if ``consumequeue/`` has a queue of one."""
    fs, path = location.fs, location.paths.topics
    found = list_batch_topics(fs, location.root)
    with contextlib.suppress(FormatError, FileTooLargeError):  # a broker would not read it either
        # To parse 10,000 topics takes 50 ms, and each micro-batch opens its store.
        documents = [read_whole(fs, each, DOCUMENT_BYTES_MAX) or b"" for each in (path, f"{path}.bak")]
        if any(_BATCH_TYPE.encode() in each for each in documents):
            for topic, entry in _entries(location).items():
                attributes = entry.get("attributes")
                if isinstance(attributes, dict) and attributes.get("queue.type") == _BATCH_TYPE:
                    found.add(topic)
    return found


def refuse_batch_topics(location: StoreLocation, what: str, fix: str) -> None:
    """Raise `UnsupportedStoreError` for a store with `batch_topics`."""
    topics = batch_topics(location)
    if topics:
        raise UnsupportedStoreError(
            f"{what}: {', '.join(sorted(topics))} have batch queues (queue.type=BatchCQ), which are not written",
            path=location.root,
            fix=fix,
        )


def warn_of_compacted_topics(location: StoreLocation) -> None:
    """Warn once of a store whose broker serves topics from ``compaction/``, where no put adds to them."""
    topics = sorted(list_compacted_topics(location.fs, location.root))
    if topics:
        text = "%s: consumers of %s read compaction/ (cleanup.policy=COMPACTION), so they get no appended message"
        warn_once(_log, location.root, text, location.root, ", ".join(topics))


def _entries(location: StoreLocation) -> dict[str, Document]:
    """Entries of the topics, as a broker has them in its document or in RocksDB."""
    fs, path = location.fs, location.paths.topics
    try:
        loaded = load_config(fs, location.root, path, TOPICS, lambda found: found)
    except MissingExtraError as error:
        warn_once(_log, location.root, "topics without messages are unknown: %s", error)
        loaded = load_document(fs, path, lambda found: found)
    table = loaded.document.get("topicConfigTable")
    entries = table.items() if isinstance(table, dict) else ()
    return {str(topic): entry for topic, entry in entries if isinstance(entry, dict)}


def _entry(topic: str) -> Document:
    return {
        "order": False,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
    }
