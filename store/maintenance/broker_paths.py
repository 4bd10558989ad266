"""CommitLog directories that a broker's configuration names, as seen from a store directory.

::

    storePathRootDir=/data/store                 STORE is /backup/store: what is below the root moves with it
    storePathCommitLog=/data/store/log,/disk2    ──► /backup/store/log  /disk2
    readOnlyCommitLogStorePaths=/disk3           ──► /disk3
                                                     + a note for each contradiction

RocketMQ: ``MessageStoreConfig``, ``MixAll.MULTI_PATH_SPLITTER``.
"""

import os
from typing import Final, NamedTuple

from ..errors import ConfigError
from ..files.fs import FileSystem, LocalFileSystem
from ..files.segments import list_segments
from ..format.broker_config import parse_properties
from ..format.store_paths import StorePaths

_ROOT: Final = "storePathRootDir"
_LOGS: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")


class BrokerPaths(NamedTuple):
    """CommitLog directories of a configuration.

    Attributes
    ----------
    commit_logs
        Directories in their order; empty where the configuration leaves them in ``commitlog`` of the store.
    notes
        Sentences about what disagrees with the store.
    """

    commit_logs: tuple[str, ...]
    notes: tuple[str, ...]


def configured_paths(conf: str, store: str | os.PathLike[str], fs: FileSystem | None = None) -> BrokerPaths:
    """Return the CommitLog directories that a ``broker.conf`` names for a store.

    Parameters
    ----------
    conf
        Text of the configuration.
    store
        Directory of the store that is asked about.

    Raises
    ------
    ConfigError
        If a directory that is named is missing.
    FormatError
        If the text holds a wrong escape.
    """
    fs = fs or LocalFileSystem()
    properties = parse_properties(conf)
    store = os.path.abspath(store)
    root = os.path.abspath(properties[_ROOT].strip()) if properties.get(_ROOT, "").strip() else store
    notes: list[str] = []
    if root != store:
        notes.append(f"{_ROOT} of the configuration is {root}, and not {store}")
    found: list[str] = []
    for name in _LOGS:
        for path in filter(None, (part.strip() for part in properties.get(name, "").split(","))):
            directory = os.path.abspath(path)
            if directory == root or directory.startswith(f"{root}/"):
                directory = store + directory[len(root) :]
            if fs.stamp(directory) is None:
                raise ConfigError(
                    f"{name} of the configuration names a directory that is not there",
                    path=directory,
                    fix="Pass the configuration of this store's broker, or the directories with --commit-log",
                )
            if directory not in found:
                found.append(directory)
    default = StorePaths(store).commit_log
    if found and default not in found and list_segments(fs, [default]):
        notes.append(f"{default} has segments, and {_LOGS[0]} of the configuration names other directories")
    return BrokerPaths(() if found == [default] else tuple(found), tuple(notes))
