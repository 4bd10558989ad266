"""Archives by URL: pushed, pulled, listed, checked, pruned. Drawn: the pull, of a store or of some topics and times.

::

    STORE.pulling/   commitlog/ segments, byte for byte ◄── pieces, each compared with its digest
                     dledger-ID/data/ segments          ◄── of a DLedger log; its index and checkpoint by its entries
                     consumequeue/ index/               ◄── rebuilt from the log
                     config/ .segmentlog/ checkpoint    ◄── files of the manifest; ledger and history end with the log
      pulled-from                      ◄── the request, then the report of the pull
    STORE            ◄── renamed, once all of it is on the device

A pull that was killed continues: pieces on the disk whose digests agree are not fetched again. One that was killed
after the rename is complete: the same request reports it again, as long as neither the archive nor the store changed.
"""

import json
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Final

import numpy as np

from ..archive.look import ArchiveCheck, ArchiveContent, describe, fetched, verify
from ..archive.prune import PruneReport, prune
from ..archive.push import ORPHANS_AFTER_S, PushReport, push
from ..errors import ConfigError, CorruptError, StoreInUseError, UnknownQueueError
from ..files.fresh_directory import locked
from ..files.fs import absolute
from ..files.small_file import read_whole, replace_file
from ..files.writable_fs import LocalWritableFileSystem
from ..format.archive_manifest import Manifest
from ..format.archive_part import LogRange, Part, Piece, gaps
from ..format.index_file import Geometry
from ..format.naming import segment_name
from ..format.store_paths import CONFIG, OURS, DLedgerPaths, StorePaths
from ..log.batch_state import BatchRecords
from ..objects.manifests import heads_of, newest, whole_part
from ..objects.object_store import ObjectStore
from ..objects.opening import open_objects
from ..read.snapshot import Snapshot
from ..types import QueueSource, Window
from .group_files import write_group_files
from .rebuild import description, write_index, write_queues

_log = logging.getLogger(__name__)

_ALWAYS: Final = Window()
_REQUEST_BYTES_MAX: Final = 1 << 20
_SHOWN: Final = 12  # topics in an error


@dataclass(frozen=True, kw_only=True, slots=True)
class PullReport:
    """Result of a pull.

    Attributes
    ----------
    manifest
        Number of the manifest that was restored.
    start, stop
        Physical offsets of the restored log.
    segments, fetched_bytes, kept_bytes
        Segments, bytes of the log that were fetched, and those that an interrupted pull had fetched.
    queues, entries
        Queues, and messages that their entries name.
    keys
        Entries of the index.
    """

    manifest: int
    start: int
    stop: int
    segments: int
    fetched_bytes: int
    kept_bytes: int
    queues: int
    entries: int
    keys: int


def pull(
    objects: ObjectStore,
    directory: str | os.PathLike[str],
    *,
    topics: Sequence[str] | None = None,
    window: Window = _ALWAYS,
) -> PullReport:
    """Restore a store from its archive, or a part of it."""
    number, manifest = newest(objects)
    parts = heads_of(objects, manifest)
    pieces, chosen = _chosen(objects, manifest, parts, topics, window)
    target = absolute(directory)
    request = {"url": objects.url, "topics": topics and sorted(topics), "from": window.start_ms, "to": window.stop_ms}
    made = _Pull(objects, manifest, chosen, target, json.dumps(request).encode())
    is_whole = topics is None and len(chosen) == len(pieces)
    return made.run(number, topics, is_whole=is_whole)


def _chosen(
    objects: ObjectStore,
    manifest: Manifest,
    parts: Sequence[Part],
    topics: Sequence[str] | None,
    window: Window,
) -> tuple[list[Piece], list[Piece]]:
    """Return all pieces, and those of the segments to restore."""
    pieces = [piece for part in parts for piece in part.pieces]
    wanted = np.ones(len(pieces), np.bool_)
    if topics is not None:
        known = {queue.topic for part in parts for queue in part.queues}
        known |= {each.topic for each in manifest.pruned}
        unknown = [topic for topic in topics if topic not in known]
        if unknown:
            names = ", ".join(f"`{each}`" for each in sorted(known)[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
            problem = f"topic `{unknown[0]}` is not in this archive"
            raise UnknownQueueError(problem, path=objects.url, fix=f"Its topics are {names or 'none'}")
        wanted[:] = False
        wanted[_with_topics(objects, manifest, parts, set(topics))] = True
    for at, piece in enumerate(pieces):
        is_before = window.start_ms is not None and piece.last_time < window.start_ms
        is_after = window.stop_ms is not None and piece.first_time >= window.stop_ms
        wanted[at] &= piece.records > 0 and not is_before and not is_after
    rows = np.flatnonzero(wanted)
    if not rows.size:
        raise ConfigError(
            "the archive has no such messages",
            path=objects.url,
            fix="`segmentlog archive ls URL` lists its queues, and `segmentlog archive ls URL pieces` its times",
        )
    # Whole segments: a broker looks for the first record at the start of a file.
    segments = np.array([piece.segment for piece in pieces])
    first = int(np.searchsorted(segments, segments[rows[0]]))
    stop = int(np.searchsorted(segments, segments[rows[-1]], side="right"))
    chosen = pieces[first:stop]
    for start, end in gaps(chosen, chosen[0].segment):
        raise ConfigError(
            f"the archive lacks [{start}, {end}) of the log, and a broker opens no log with a gap",
            path=objects.url,
            fix="Name a window of times before or after the gap",
        )
    return pieces, chosen


def _with_topics(objects: ObjectStore, manifest: Manifest, parts: Sequence[Part], topics: set[str]) -> list[int]:
    """Return the numbers of the pieces that have messages of some topics."""
    found: list[int] = []
    first = 0
    for at, part in enumerate(parts):
        queues = [number for number, queue in enumerate(part.queues) if queue.topic in topics]
        if queues:
            whole = part if part.runs is not None else whole_part(objects, manifest.parts[at])
            assert whole.runs is not None
            pieces = whole.runs["piece"][np.isin(whole.runs["queue"], queues)]
            found += (first + np.unique(pieces)).tolist()
        first += len(part.pieces)
    return found


class _Pull:
    def __init__(
        self, objects: ObjectStore, manifest: Manifest, pieces: Sequence[Piece], target: str, request: bytes
    ) -> None:
        self._objects = objects
        self._manifest = manifest
        self._pieces = pieces
        self._start, self._stop = pieces[0].start, pieces[-1].stop
        self._target = target
        self._request = request
        self._aside = f"{target}.pulling"
        self._paths = StorePaths(self._aside)
        broker = manifest.dledger_id if pieces[-1].lead else None
        self._group = None if broker is None else DLedgerPaths.of_broker(self._aside, broker)
        self._fs = LocalWritableFileSystem()
        self._fetched = self._kept = 0

    def run(self, number: int, topics: Sequence[str] | None, *, is_whole: bool) -> PullReport:
        complete = self._complete(number)
        if complete is not None:
            _log.warning("%s was restored by this pull before: nothing is fetched", self._target)
            return complete
        self._check_target()
        self._fs.make_dir(self._aside)
        lock = locked(self._aside)
        if lock is None:
            raise StoreInUseError("another process pulls into this directory", path=self._aside, fix="Wait for it")
        try:
            self._begin()
            self._restore_log()
            self._restore_files(is_whole=is_whole)
            report = self._rebuild(number, topics)
            if is_whole:
                BatchRecords(self._fs, self._aside).settle_ledger(self._fs, self._stop)
            stated = self._request + b"\n" + json.dumps(asdict(report)).encode()
            replace_file(self._fs, self._paths.pulled_from, stated, self._paths.making_state)
            for folder, _, _ in os.walk(self._aside, topdown=False):
                self._fs.sync_dir(folder)
            self._fs.rename(self._aside, self._target)
            self._fs.sync_dir(os.path.dirname(self._target))
        finally:
            os.close(lock)
        return report

    def _complete(self, number: int) -> PullReport | None:
        """Return the report of a store that the same pull restored from the same manifest, and nobody wrote since."""
        stated = read_whole(self._fs, StorePaths(self._target).pulled_from, _REQUEST_BYTES_MAX) or b""
        request, _, text = stated.partition(b"\n")
        if request != self._request or not text:
            return None
        try:
            report = PullReport(**json.loads(text))
        except (ValueError, TypeError):
            return None
        if report.manifest != number or Snapshot.open(self._target).readable_stop() != report.stop:
            return None
        return replace(report, fetched_bytes=0, kept_bytes=report.stop - report.start)

    def _check_target(self) -> None:
        if any(self._fs.list_dir(self._target)) or self._fs_is_file(self._target):
            raise ConfigError(
                "this is where a store is to be restored, and something is there",
                path=self._target,
                fix="Nothing is overwritten: move it away first, or name another directory",
            )

    def _begin(self) -> None:
        """Begin in the locked directory, or continue the same pull."""
        self._check_target()  # the pull that had the lock may have ended
        found = read_whole(self._fs, self._paths.pulled_from, _REQUEST_BYTES_MAX) or b""
        found = found.partition(b"\n")[0]
        if found == self._request:
            return
        # The request is written first: a pull that was killed within that has left nothing else.
        names = {*self._names(self._aside), *self._names(self._paths.ours)}
        names -= {OURS, os.path.basename(self._paths.pulled_from)}
        if names or not self._request.startswith(found):
            raise ConfigError(
                "another pull was begun here",
                path=self._aside,
                fix="Repeat it to its end, or delete the directory",
            )
        os.chmod(self._aside, stat.S_IMODE(os.stat(self._aside).st_mode) & self._manifest.mode)
        self._fs.make_dir(self._paths.ours)
        self._write(self._paths.pulled_from, self._request)

    def _names(self, directory: str) -> list[str]:
        return [each.name for each in self._fs.list_dir(directory)]

    def _fs_is_file(self, path: str) -> bool:
        return self._fs.stamp(path) is not None and not os.path.isdir(path)

    # The log

    def _restore_log(self) -> None:
        stops = {self._path_of(piece): piece.stop - piece.segment for piece in self._pieces}
        if self._group is not None:
            self._fs.make_dir(self._group.root)
        for directory in {os.path.dirname(path) for path in stops}:
            self._fs.make_dir(directory)
            for listed in self._fs.list_dir(directory):
                path = os.path.join(directory, listed.name)
                # Since the pull was begun, the archive was pruned, or the log was cut within this segment.
                if path not in stops or self._fs.data_end(path) > stops[path]:
                    self._fs.unlink(path)
        for piece in self._pieces:
            for span in piece.ranges:
                self._restore(piece, span)
            done = {"done": piece.stop - self._start, "of": self._stop - self._start}
            _log.info("CommitLog up to %d of %d is restored", piece.stop, self._stop, extra=done)

    def _path_of(self, piece: Piece) -> str:
        directory = self._group.data if self._group is not None and piece.lead else self._paths.commit_log
        return os.path.join(directory, segment_name(piece.segment))

    def _restore(self, piece: Piece, span: LogRange) -> None:
        """Restore the bytes of one object."""
        path = self._path_of(piece)
        size = self._fs.size(path)
        if size is not None and size > piece.segment_size:
            self._fs.unlink(path)
            size = None
        at, end = span.start - piece.segment, span.stop - piece.segment
        if size == piece.segment_size and sha256(self._fs.map(path, at, end).data).hexdigest() == span.digest:
            self._kept += end - at
            return
        with closing(self._fs.create(path) if size is None else self._fs.open(path)) as file:
            file.extend(piece.segment_size)  # the rest stays zero, as a broker allocates it
            digest = sha256()
            for first, data in fetched(self._objects, span.key, end - at):
                digest.update(data.data)
                file.write(at + first, data.data)
            file.sync()
        if digest.hexdigest() != span.digest:
            raise self._damaged(span.key)
        self._fetched += end - at

    def _damaged(self, key: str) -> CorruptError:
        return CorruptError(
            "the bytes of this object contradict their digest",
            path=f"{self._objects.url}/{key}",
            fix="`segmentlog archive verify --deep` lists all damaged objects; restore times before or after this one",
        )

    # Everything else

    def _restore_files(self, *, is_whole: bool) -> None:
        """Write the configuration, and the state of a whole store."""
        for path in (CONFIG, self._paths.consume_queues, self._paths.index):
            shutil.rmtree(os.path.join(self._aside, path), ignore_errors=True)  # of a pull that was killed
        for name in self._names(self._paths.ours):  # the same: it may have been of the whole store then
            if (path := os.path.join(self._paths.ours, name)) != self._paths.pulled_from:
                self._fs.unlink(path)
        if self._group is not None:
            shutil.rmtree(self._group.index, ignore_errors=True)
            write_group_files(self._fs, self._group)
        self._fs.make_dir(self._paths.config)
        for file in self._manifest.files:
            if file.path.startswith(f"{CONFIG}/") or (is_whole and file.path.startswith(f"{OURS}/")):
                data = self._objects.get(file.key, 0, file.size)
                if sha256(data.data).hexdigest() != file.digest:
                    raise self._damaged(file.key)
                self._write(os.path.join(self._aside, file.path), data.tobytes())

    def _rebuild(self, number: int, topics: Iterable[str] | None) -> PullReport:
        manifest = self._manifest
        sizes = manifest.sizes
        snapshot = Snapshot.open(self._aside, queue_source=QueueSource.COMMIT_LOG)
        queues = write_queues(snapshot, self._paths.consume_queues, sizes.queue_segment_entries or None).report()
        keys = 0
        if manifest.has_index:
            geometry = Geometry(sizes.index_slots, sizes.index_entries)
            keys = write_index(snapshot, self._paths.index, geometry)
        newest_ms = max(piece.last_time for piece in self._pieces)
        state = description(self._aside, self._stop, newest_ms, sizes)
        if topics is not None or self._group is not None:
            state.pop(StorePaths("").durable_point)  # of a store that we write: it states the entries of all queues
        if topics is not None:
            for listed in self._fs.list_dir(self._paths.consume_queues):
                if listed.name not in set(topics):
                    shutil.rmtree(os.path.join(self._paths.consume_queues, listed.name))
        for path, data in state.items():
            self._write(os.path.join(self._aside, path), data)
        rows, count = queues.entries, queues.queues
        if topics is not None:
            snapshot = Snapshot.open(self._aside)
            bounds = [each for topic in snapshot.topics() if topic in set(topics) for each in snapshot.queues(topic)]
            rows, count = sum(map(len, bounds)), len(bounds)
        return PullReport(
            manifest=number,
            start=self._start,
            stop=self._stop,
            segments=len({piece.segment for piece in self._pieces}),
            fetched_bytes=self._fetched,
            kept_bytes=self._kept,
            queues=count,
            entries=rows,
            keys=keys,
        )

    def _write(self, path: str, data: bytes) -> None:
        self._fs.unlink(path)
        with closing(self._fs.create(path)) as file:
            file.write(0, data)
            file.sync()


# Verbs of archives


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

    Raises
    ------
    NotAStoreError
        If there is no archive.
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
    before_ms: int | None = None,
    *,
    max_bytes: int | None = None,
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
    max_bytes
        Bytes of the objects of all segments: the oldest segments that are too much go.
    grace_s
        Age in seconds from which objects are deleted that none of the last 20 manifests names.
    dry_run
        Only report.

    Raises
    ------
    ConfigError
        If neither a time nor a size is passed.
    """
    if before_ms is None and max_bytes is None:
        raise ConfigError("archive_prune has neither a time nor a size", fix="Pass before_ms, max_bytes, or both")
    objects = open_objects(url, options)
    return prune(objects, before_ms, max_bytes=max_bytes, grace_s=grace_s, dry_run=dry_run)
