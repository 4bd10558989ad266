"""``config/topics.json``: the topics that a broker tells clients about.

::

    append to a new topic ──► queues and index synced ──► note(ends) ──► topics.json   (the former one as .bak)

The store itself does not need it, queues exist by their directories; a broker that is started on the store does, for
its clients' routes. What is in the document and not understood stays. RocketMQ: ``TopicConfigManager``.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable

from ..errors import FileTooLargeError, FormatError
from ..files.fs import FileSystem, LocalFileSystem
from ..files.small_file import DOCUMENT_BYTES_MAX, check_size, read_whole, replace_file
from ..files.writable_fs import WritableFileSystem
from ..format.documents import Document, load, render
from ..format.naming import is_broker_topic
from ..format.store_paths import StorePaths
from ..types import QueueKey

_log = logging.getLogger(__name__)


class TopicTable:
    """The topics of one store that is open for writing.

    Parameters
    ----------
    fs, paths
        The store.
    """

    def __init__(self, fs: WritableFileSystem, paths: StorePaths) -> None:
        self._fs = fs
        self._path = paths.topics
        self._making = paths.making_topics
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}  # queues of each topic that the document is known to have

    def note(self, keys: Iterable[QueueKey]) -> None:
        """Write down topics and queues that the document does not have. Any thread may."""
        with self._lock:
            self._note(keys)

    def _note(self, keys: Iterable[QueueKey]) -> None:
        queues: dict[str, int] = {}
        for key in keys:
            queues[key.topic] = max(queues.get(key.topic, 0), key.queue_id + 1)
        wanted = {
            topic: count
            for topic, count in queues.items()
            if count > self._seen.get(topic, 0) and not is_broker_topic(topic)
        }
        if not wanted:
            return
        try:
            self._add(wanted)
        except (FormatError, FileTooLargeError) as error:
            _log.warning("%s is left as it is, new topics are not in it: %s", self._path, error)
        self._seen |= wanted

    def _add(self, wanted: dict[str, int]) -> None:
        old, backup = _read(self._fs, self._path)
        document: Document = load(old, backup).document
        table = document.setdefault("topicConfigTable", {})
        if not isinstance(table, dict):
            raise FormatError("topicConfigTable is no object", path=self._path)
        changed = False
        for topic, count in wanted.items():
            entry = table.setdefault(topic, _entry(topic))
            if not isinstance(entry, dict):
                raise FormatError(f"what it says of topic {topic} is no object", path=self._path)
            for name in ("readQueueNums", "writeQueueNums"):
                held = entry.get(name)
                if not isinstance(held, int) or held < count:
                    entry[name] = count
                    changed = True
        if not changed:
            return
        version = document.setdefault("dataVersion", {})
        if isinstance(version, dict):
            counter = version.get("counter")
            version["counter"] = (counter if isinstance(counter, int) else 0) + 1
            version["timestamp"] = time.time_ns() // 1_000_000
        content = render(document).encode()
        check_size(self._path, len(content), DOCUMENT_BYTES_MAX)
        if old:
            replace_file(self._fs, self._path + ".bak", old, self._making)
        replace_file(self._fs, self._path, content, self._making)


def topic_queues(path: str | os.PathLike[str]) -> dict[str, int]:
    """Tell how many queues the topics of a store have for those who write, as ``config/topics.json`` says.

    Parameters
    ----------
    path
        The store directory; a broker's, ours, or none yet.

    Raises
    ------
    FormatError
        If neither the document nor its backup makes sense.
    FileTooLargeError
        If one has more than 64 MiB.
    """
    document = StorePaths(os.path.abspath(path)).topics
    table = load(*_read(LocalFileSystem(), document)).document.get("topicConfigTable")
    entries = table.items() if isinstance(table, dict) else ()
    counts = {topic: entry.get("writeQueueNums") for topic, entry in entries if isinstance(entry, dict)}
    return {str(topic): count for topic, count in counts.items() if isinstance(count, int) and count > 0}


def _read(fs: FileSystem, path: str) -> tuple[bytes | None, bytes | None]:
    """Read the document and its backup."""
    return read_whole(fs, path, DOCUMENT_BYTES_MAX), read_whole(fs, path + ".bak", DOCUMENT_BYTES_MAX)


def _entry(topic: str) -> Document:
    return {
        "order": False,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
    }
