"""Writer of group offsets: beside the broker's document always, and into it while no broker has the store open.

::

    decide(positions) ──► .segmentlog/groups.json              positions published here, and the broker's document now
                     └──► .segmentlog/groups.making ──► config/consumerOffset.json      under the store's lock;
                                                                                        the former one as .bak;
                                            or lmqConsumerOffset.json, see `group_offsets.offsets_path`

Ours is written first, so that a change is whole or absent. The store's lock is held for two renames and no longer, so
that a process that opens the store does not find it taken. RocketMQ: ``ConsumerOffsetManager``, ``ConfigManager``.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import Enum

from ..directory.documents import replace_document
from ..directory.group_offsets import Progress, Table, is_light, owner_key, read_progress, sidecar_document
from ..directory.layout import StoreLocation, check_is_store, refuse_dledger
from ..errors import StoreInUseError
from ..files.fs import absolute
from ..files.small_file import DOCUMENT_BYTES_MAX, check_size, replace_file
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.documents import Document, Loaded, render
from ..format.store_paths import StorePaths


class Recorded(Enum):
    """Document that a change was written to."""

    STORE = "store"
    """``config/consumerOffset.json``: a broker that is started on the store continues from it."""
    SIDECAR = "sidecar"
    """Beside it only, since another process has the store open: our readers see it, the broker's consumers do not."""
    NOWHERE = "nowhere"
    """Not at all: a dry run, or nothing changed."""


class GroupWriter:
    """Changes the documents of one store, one change each; ``fs`` is None for the machine's own."""

    def __init__(self, path: str, fs: WritableFileSystem | None) -> None:
        self._fs = fs or LocalWritableFileSystem()
        self.path = absolute(path)
        self._paths = StorePaths(self.path)
        self.recorded = Recorded.NOWHERE  # document that the change was written to, so far

    def set_offsets(self, decide: Callable[[Table], Table]) -> Table:
        """Set the positions that a function of all positions returns; return all earlier ones."""
        with self._alone():
            progress = read_progress(self._fs, self.path)
            held = progress.merged()
            changes = _changes(held, decide(held))
            if changes:
                self._write(progress, changes)
        return held

    def set_broadcast(self, group: str, consumer: str, decide: Callable[[Table], Table]) -> None:
        """Set the positions of one broadcasting consumer that a function of all its positions returns."""
        with self._alone():
            progress = read_progress(self._fs, self.path)
            held = progress.sidecar.broadcast.setdefault(group, {}).setdefault(consumer, {})
            changes = _changes(held, decide(held))
            if changes:
                _update(held, changes)
                self._write_sidecar(progress)

    def delete(self, group: str, topics: Collection[str] | None) -> None:
        """Delete the positions of a group and its broadcasting consumers, in some topics or in all."""
        # Refused if the broker's document knows the group and another process has the store open.
        with self._alone():
            progress = read_progress(self._fs, self.path)
            sidecar = progress.sidecar
            gone = {
                owner
                for owner in (*progress.stored, *sidecar.offsets)
                if owner.group == group and (topics is None or owner.topic in topics)
            }
            stays = bool(gone & progress.stored.keys())
            if stays:
                for owner in gone:
                    _table(progress.document).pop(owner_key(owner), None)
                    _table(progress.document, "lmqOffsetTable").pop(owner_key(owner), None)
                if self._is_anothers() or not self._write_store(progress):
                    raise StoreInUseError(
                        f"group {group} cannot be deleted: the process that has this store open keeps it in memory",
                        path=self.path,
                        fix="Stop it first, or delete the group there (mqadmin deleteSubGroup)",
                    )
            for owner in gone:
                sidecar.offsets.pop(owner, None)
                sidecar.seen.pop(owner, None)
            for consumer, table in sidecar.broadcast.get(group, {}).items():
                sidecar.broadcast[group][consumer] = {
                    owner: queues for owner, queues in table.items() if topics is not None and owner.topic not in topics
                }
            self._write_sidecar(progress)

    def _write(self, progress: Progress, changes: Table) -> None:
        sidecar = progress.sidecar
        _settle(progress)
        for owner, queues in changes.items():
            stored, seen = progress.stored.get(owner, {}), sidecar.seen.setdefault(owner, {})
            for queue_id in queues:
                seen.pop(queue_id, None)
                if queue_id in stored:
                    seen[queue_id] = stored[queue_id]
        _update(sidecar.offsets, changes)
        self._write_sidecar(progress)
        if self._is_anothers():
            return
        offsets, light = _table(progress.document), progress.path == self._paths.light_offsets
        for owner, queues in progress.merged().items():
            if light and is_light(owner.group):
                _table(progress.document, "lmqOffsetTable")[owner_key(owner)] = queues[0]
                continue
            entry = offsets.setdefault(owner_key(owner), {})
            assert isinstance(entry, dict)  # it was read as one
            for queue_id, offset in queues.items():
                entry.pop(queue_id, None)  # a broker's key, without quotes: 5 and "5" are two
                entry[str(queue_id)] = offset
        self._write_store(progress)

    def _write_sidecar(self, progress: Progress) -> None:
        content = render(sidecar_document(progress.sidecar)).encode()
        check_size(self._paths.group_positions, len(content), DOCUMENT_BYTES_MAX)
        replace_file(self._fs, self._paths.group_positions, content, self._paths.making_groups)
        self.recorded = Recorded.SIDECAR if self.recorded is Recorded.NOWHERE else self.recorded

    def _write_store(self, progress: Progress) -> bool:
        """Replace the broker's document; False if another process has the store open, which would overwrite it."""
        fs, paths = self._fs, self._paths
        fs.make_dir(paths.config)
        loaded = Loaded(progress.document, progress.origin)
        # The lock is held for two renames: no process that opens the store may find it taken.
        moment = fs.lock_store_for_a_moment(paths.lock)
        if not replace_document(fs, progress.path, loaded, paths.making_groups, moment):
            return False
        self.recorded = Recorded.STORE
        return True

    def _is_anothers(self) -> bool:
        """Return whether another process seems to have the store open: a hint that saves a useless write."""
        return self._fs.lock_owner(self._paths.lock) not in {None, os.getpid()}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude other writers of this library, in this process and in others."""
        fs, root = self._fs, self.path
        check_is_store(StoreLocation(fs, root), {entry.name: entry for entry in fs.list_dir(root)})
        refuse_dledger(fs, root, "positions of groups cannot be changed here")
        fs.make_dir(self._paths.ours)
        with fs.mutex(self._paths.group_mutex):
            yield


def _changes(held: Table, asked: Table) -> Table:
    """Return the asked positions that differ from the held ones."""
    found = {
        owner: {q: offset for q, offset in queues.items() if held.get(owner, {}).get(q) != offset}
        for owner, queues in asked.items()
    }
    return {owner: queues for owner, queues in found.items() if queues}


def _settle(progress: Progress) -> None:
    """Drop positions that the broker's document has by now."""
    sidecar = progress.sidecar
    for owner, queues in sidecar.offsets.items():
        stored = progress.stored.get(owner, {})
        for queue_id in [q for q, offset in queues.items() if stored.get(q) == offset]:
            del queues[queue_id]
            sidecar.seen.get(owner, {}).pop(queue_id, None)


def _update(table: Table, changes: Table) -> None:
    for owner, queues in changes.items():
        table.setdefault(owner, {}).update(queues)


def _table(document: Document, name: str = "offsetTable") -> Document:
    table = document.get(name)
    if not isinstance(table, dict):
        table = document[name] = {}
    return table
