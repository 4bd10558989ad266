"""Topics and group offsets of a broker that keeps its configuration in RocksDB (``storeType=defaultRocksDB``).

::

    config/topics.json     a document           {"dataVersion": {"counter": 7, …}, "topicConfigTable": {"T": {…}}}

    config/topics/         a database           family default        T                     {…}, as in the document
                                                family kvDataVersion  kvDataVersionKey      {"counter": 7, …}
    config/metadata/       one for all tables   family topic          T                     {…}
    (useSingleRocksDBForAllConfigs, from 5.5)   family topicVersion   kvDataVersionKey      {"counter": 7, …}

    config/consumerOffsets/                     family default        T@group               {"offsetTable":{"0":5}}

The database with the higher counter counts; with equal counters, the one for all tables. If the counter of the JSON
document is higher still, its entries replace those of the database: a broker merges them so when it starts. RocketMQ:
``RocksDBTopicConfigManager.merge``, ``RocksDBConsumerOffsetManager.merge``. The format of ``configManagerVersion=v2``,
``config/rdb``, is not read.
"""

import logging
import os
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from ..errors import CorruptError, FileTooLargeError, FormatError, UnsupportedStoreError
from ..files.fs import FileSystem
from ..files.notices import warn_once
from ..files.rocksdb import DEFAULT_FAMILY, RocksDatabase, is_rocksdb
from ..files.small_file import DOCUMENT_BYTES_MAX
from ..format.documents import Document, Json, Loaded, parse
from ..format.store_paths import CONFIG
from .documents import load_document, version_number
from .layout import require_directory

_log = logging.getLogger(__name__)

T = TypeVar("T")

_ALL_TABLES: Final = "metadata"
_VERSION_2: Final = "rdb"
_VERSION_FAMILY: Final = "kvDataVersion"
_VERSION_KEY: Final = b"kvDataVersionKey"


class ConfigTable(NamedTuple):
    """One of RocketMQ's tables."""

    field: str  # of the JSON document
    directory: str  # of the table's own database, in config/
    family: str  # in the database of all tables
    inner: str | None = None  # if the document has only this field of each value


TOPICS: Final = ConfigTable("topicConfigTable", "topics", "topic")
OFFSETS: Final = ConfigTable("offsetTable", "consumerOffsets", "consumerOffset", "offsetTable")


def load_config(fs: FileSystem, root: str, path: str, table: ConfigTable, read: Callable[[Loaded], T]) -> T:
    """Load the document ``path`` of a store, merged with the table in RocksDB, and ``read`` it.

    Raises the errors of `load_document`, `FormatError` also for a damaged database, and `MissingExtraError` for one
    that cannot be read without the extra.
    """
    databases = _databases(fs, root, table)
    if not databases:
        return load_document(fs, path, read)
    loaded = load_document(fs, path, lambda found: found)
    read_tables = [_read(fs, *each, table) for each in databases]
    document = max(read_tables, key=lambda each: version_number(each, "counter"))  # the first of equal ones
    if version_number(loaded.document, "counter") > version_number(document, "counter"):
        entries, newer = document[table.field], loaded.document.get(table.field)
        assert isinstance(entries, dict)
        merged = entries | newer if isinstance(newer, dict) else entries
        document = document | loaded.document | {table.field: merged}
    try:
        return read(Loaded(document, loaded.origin))
    except FormatError as error:
        raise FormatError(error.problem, path=databases[0][0], fix=error.fix) from None


def _databases(fs: FileSystem, root: str, table: ConfigTable) -> list[tuple[str, str, str]]:
    """Directory, family and version family of each database that has a table; that of all tables first."""
    config = os.path.join(root, CONFIG)
    found = []
    kinds = {
        table.directory: (DEFAULT_FAMILY, _VERSION_FAMILY),
        _ALL_TABLES: (table.family, f"{table.family}Version"),
    }
    for entry in fs.list_dir(config):
        directory = os.path.join(config, entry.name)
        if entry.name in kinds and (entry.is_dir or entry.is_link):
            require_directory(entry, directory)
            if is_rocksdb(fs, directory):
                found.append((directory, *kinds[entry.name]))
        elif entry.name == _VERSION_2 and is_rocksdb(fs, directory):
            warn_once(
                _log,
                directory,
                "%s holds topics and group offsets in the format of configManagerVersion=v2, which is not read",
                directory,
            )
    return sorted(found, key=lambda each: each[1] == DEFAULT_FAMILY)


def _read(fs: FileSystem, directory: str, family: str, version: str, table: ConfigTable) -> Document:
    """Read a table and its version into the form of the JSON document."""
    entries: Document = {}
    size = 0
    try:
        with RocksDatabase.open(fs, directory) as database:
            stated = database.get(version, _VERSION_KEY)
            for key, value in database.items(family):
                size += len(key) + len(value)
                if size > DOCUMENT_BYTES_MAX:
                    raise FileTooLargeError(
                        f"this table has more than {DOCUMENT_BYTES_MAX} bytes, the most that is read", path=directory
                    )
                entries[key.decode("utf-8", "replace")] = _entry(value, table)
            document: Document = {table.field: entries}
            if stated is not None:
                document["dataVersion"] = parse(stated.decode("utf-8", "replace"))
    except (CorruptError, UnsupportedStoreError) as error:
        raise FormatError(
            error.problem, path=error.path, fix="The broker repairs or reports it when it starts"
        ) from None
    except FormatError as error:
        raise FormatError(error.problem, path=directory, fix="Was the table written by a newer broker?") from None
    return document


def _entry(value: bytes, table: ConfigTable) -> Json:
    found = parse(value.decode("utf-8", "replace"))
    return found if table.inner is None else found.get(table.inner)
