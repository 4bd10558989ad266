"""Archives of stores by their URLs: pushed, listed, verified, pruned, and pulled again."""

import os
from collections.abc import Mapping, Sequence

from ..archive.look import ArchiveCheck, ArchiveContent, describe, verify
from ..archive.prune import PruneReport, prune
from ..archive.push import ORPHANS_AFTER_S, PushReport, push
from ..objects.opening import open_objects
from ..types import Window
from .pulling import PullReport, pull


def archive_push(
    store: str | os.PathLike[str],
    url: str,
    *,
    options: Mapping[str, str] | None = None,
    commit_log_paths: Sequence[str | os.PathLike[str]] = (),
    keep_damage: bool = False,
    check_crcs: bool = True,
    orphans_after_s: float | None = None,
) -> PushReport:
    """Copy what is new in a store into its archive; a broker may have the store open.

    Parameters
    ----------
    store
        The store directory.
    url
        The archive, or an empty place: ``s3://bucket/prefix``, ``file:///path`` and others.
    options
        Options of the object store: endpoint, region, credentials.
    commit_log_paths
        Directories of the segments, if they are not in ``store/commitlog`` alone.
    keep_damage
        Archive damaged ranges of the log as they are.
    check_crcs
        Compare each body with its CRC.
    orphans_after_s
        Age in seconds from which objects that no manifest names are deleted, now. By default a day, at most once per
        hour.

    Raises
    ------
    ConfigError
        If the archive belongs to another store, or its content is that of another log.
    CorruptError
        If the log is damaged and ``keep_damage`` is not set.
    UnsupportedStoreError
        If something other than an archive is at the URL.
    StoreIOError
        If the object store fails.
    """
    return push(
        store,
        open_objects(url, options),
        commit_log_paths=commit_log_paths,
        keep_damage=keep_damage,
        check_crcs=check_crcs,
        orphans_after_s=orphans_after_s,
    )


def archive_pull(
    url: str,
    directory: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    topics: Sequence[str] | None = None,
    start_ms: int | None = None,
    stop_ms: int | None = None,
) -> PullReport:
    """Restore a store from its archive, or a part of it.

    Parameters
    ----------
    url, options
        The archive; see `archive_push`.
    directory
        A new path, or an empty directory, in one that exists. ``directory.pulling`` is written first.
    topics
        Topics whose queues are restored; None for all. Segments are restored as a whole, with all their messages.
    start_ms, stop_ms
        Store times, half-open: the segments with messages in this window are restored, and those between them.

    Raises
    ------
    ConfigError
        If the directory is not empty, or the archive has no such messages, or a gap between them.
    CorruptError
        If an object contradicts its digest.
    UnknownQueueError
        If the archive has no message of a topic.

    Notes
    -----
    A store that is restored as a whole has the identity of the original: its id, and its batches. Queues are rebuilt;
    see `rebuild_queues` for the kinds that are not.
    """
    return pull(open_objects(url, options), directory, topics=topics, window=Window(start_ms, stop_ms))


def archive_content(url: str, *, options: Mapping[str, str] | None = None) -> ArchiveContent:
    """Return the content of an archive, by its manifests alone.

    Parameters
    ----------
    url, options
        The archive; see `archive_push`.
    """
    return describe(open_objects(url, options))


def archive_verify(url: str, *, options: Mapping[str, str] | None = None, deep: bool = False) -> ArchiveCheck:
    """Compare the objects of an archive with its manifests.

    Parameters
    ----------
    url, options
        The archive; see `archive_push`.
    deep
        Read all objects of the newest manifest: digests, CRCs, and packs against the records of their pieces. One piece
        at a time is in memory.
    """
    return verify(open_objects(url, options), deep=deep)


def archive_prune(
    url: str,
    before_ms: int,
    *,
    options: Mapping[str, str] | None = None,
    grace_s: float = ORPHANS_AFTER_S,
    dry_run: bool = False,
) -> PruneReport:
    """Leave out the oldest segments of an archive; at least one stays.

    Parameters
    ----------
    url, options
        The archive; see `archive_push`.
    before_ms
        Store time in ms: segments go whose records are all older.
    grace_s
        Age in seconds from which objects are deleted that none of the last 20 manifests names.
    dry_run
        Only report.
    """
    return prune(open_objects(url, options), before_ms, grace_s=grace_s, dry_run=dry_run)
