"""QueueWatch: queues of a store that moved, for a read of 40 bytes per queue, and the wait for the next message.

::

    ConsumeQueue file   … [ e(end-1) ][ 00000000 ] …     the bytes at the last look
                          [ e(end-1) ][ e(end)   ]       moved: a message was appended
                          [ another  ][ …        ]       rewritten: truncated, repaired, recreated
                          no such file                   retention, or the topic was deleted

    CommitLog   …[record][last record][00000000 …        header of the last record unchanged, zeros after it:
                         ▲ _last      ▲ _end             nothing was appended, and no queue is read
                         └─ size ─────┘  hop to the next record, or over the blank at the end of a segment

    QueueTails          … [ e(end-1) ][ 00000000 ][ 00000000 ] …
                          └──── mapped, 64 KiB ────────────────►
                          ◄─ 20 or 40 bytes ─────►       compared with the bytes at the last look

The modification time of a file does not tell. A broker writes through a map, and the kernel updates the time only when
a clean page becomes dirty. So the place of the next entry is read, which costs some microseconds and keeps neither
descriptor nor map. New topics and queues are directories, and those change the time of the directory that holds them.
A look only finds hints: offsets come from `Snapshot`, which knows what may be seen.

A watch of thousands of queues looks at the end of the log first. No queue is read if nothing was appended for
long enough that all records are in the queues. After some seconds all queues are read again, whatever the log says.

Between two looks, `QueueWatch.wait` compares the mapped tails of the queues. A broker and this library write entries
into the page cache, by a map or by ``pwrite``. A map of the same file shows both at once, on the machine of the writer.
inotify reports only ``pwrite``. A comparison costs 0.2 µs per queue. A tail that differs is reported once, and again
when it changes once more. So an entry that a batch in flight hides does not keep a follower busy until the batch is
visible.
"""

import math
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from ..directory.layout import list_queue_ids
from ..entries.queue_entries import keys_of
from ..errors import StoreIOError
from ..files.fs import DirectoryStamp, FileSystem
from ..files.segments import find
from ..format.consume_queue import ENTRY_BYTES
from ..format.message import BLANK_BYTES, HEADER, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from ..format.naming import is_readable_topic, segment_name
from ..format.store_paths import StorePaths
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueBounds, QueueKey
from .snapshot import Snapshot

PAUSE_MIN_S: Final = 0.0005
"""Pause between two comparisons while messages come."""
PAUSE_MAX_S: Final = 0.02
"""Pause after some five seconds without a message."""
_SLOWER_AFTER: Final = 256
"""A pause is at most the time since the last change, divided by this."""
_SHARE_MAX: Final = 200
"""A pause is at least so many times as long as a comparison of all tails: half a percent of one core."""
_COMPARISONS: Final = 4
"""The shortest of so many comparisons counts: one that was interrupted for 40 µs would cost a pause of 8 ms."""
_WINDOW_BYTES: Final = 1 << 16
_HOPS_MAX: Final = 64
_FRONT: Final = struct.Struct(">ii")
_MANY_QUEUES: Final = 64
"""Number of queues from which on the end of the log is looked at first."""
_DISPATCHED_S: Final = 3.0
"""Time in which an owner dispatches a message: ours may wait for a second, and sync before."""
_BELIEVED_S: Final = 5.0
"""Time for which an unchanged end of the log is believed. A message that is dispatched late is seen after it."""
_TAILS_MAX: Final = 1024
"""Most queues that are mapped while they are waited for."""


class Piece(NamedTuple):
    """A part of a queue's file, and its bytes while nothing is appended."""

    path: str
    position: int
    length: int
    still: bytes | None  # its bytes at the last look, with zeros for the next entry; None without a file
    begins_with_last: bool  # True if it begins with the last known entry, which no writer should change


@dataclass(slots=True)
class _Tail:
    """A mapped piece, and its bytes at the last report."""

    piece: Piece
    window: memoryview
    start: int
    """Position of the window in the file."""
    view: memoryview
    seen: bytes


class QueueTails:
    """Tails of the queues that one reader follows. Keeps one map per queue, and no descriptor. Not thread-safe."""

    def __init__(self, fs: FileSystem, clock: Callable[[], float]) -> None:
        self._fs = fs
        self._clock = clock
        self._tails: dict[tuple[QueueKey, int], _Tail] = {}
        self._changed_at = clock()
        self._took: deque[float] = deque(maxlen=_COMPARISONS)
        """Seconds of the last comparisons of all tails."""

    def place(self, moved: Mapping[QueueKey, Sequence[Piece]]) -> None:
        """Note where the tails of queues that were looked at are now; no pieces for a queue that is gone.

        A tail that stays in its window costs no system call. A file that does not exist yet is left to the next look.
        """
        for key, pieces in moved.items():
            for number in range(2):  # at the end of a file a queue has two
                piece = pieces[number] if number < len(pieces) else None
                before = self._tails.pop((key, number), None)
                if before is not None and before.piece == piece:
                    self._tails[key, number] = before
                elif piece is not None and piece.still is not None:
                    tail = self._mapped(piece, piece.still, before)
                    if tail is not None:
                        self._tails[key, number] = tail

    def wait(self, limit_s: float, pause: Callable[[float], bool]) -> bool:
        """Wait until a tail changes, at most ``limit_s`` seconds; return whether ``pause`` ended the wait."""
        began = now = self._clock()
        while not self._changed():
            compared = self._clock()
            self._took.append(compared - now)
            slowest = max(PAUSE_MIN_S, min(PAUSE_MAX_S, (compared - self._changed_at) / _SLOWER_AFTER))
            left = limit_s - (compared - began)
            if left <= 0:
                return False
            if pause(min(left, max(slowest, min(self._took) * _SHARE_MAX))):
                return True
            now = self._clock()
        self._changed_at = self._clock()
        return False

    def _changed(self) -> bool:
        """Return whether a tail differs from its bytes at the last report."""
        found = [tail for tail in self._tails.values() if tail.view != tail.seen]
        for tail in found:
            tail.seen = bytes(tail.view)
        return bool(found)

    def _mapped(self, piece: Piece, still: bytes, before: _Tail | None) -> _Tail | None:
        """Map a piece, or find it in the window of the tail before."""
        if before is not None and before.piece.path == piece.path:
            at = piece.position - before.start
            if at >= 0 and at + piece.length <= len(before.window):
                return _Tail(piece, before.window, before.start, before.window[at : at + piece.length], still)
        try:
            window = self._fs.map(piece.path, piece.position, piece.position + _WINDOW_BYTES).data
        except (FileNotFoundError, StoreIOError):
            return None
        if len(window) < piece.length:
            return None
        return _Tail(piece, window, piece.position, window[: piece.length], still)


class LogFollower:
    """Follows the end of a CommitLog from record to record. Keeps nothing open. Not thread-safe."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._last = -1
        self._header: bytes | None = None
        self._end = -1
        self.since: float | None = None

    def follow(self, log: CommitLog, named: int, now: float) -> None:
        """Follow records to the end, from the record at ``named`` or from the last one found, whichever is later.

        After `_HOPS_MAX` records it stops; the next call continues there.
        """
        if self._read(log, self._last, HEADER.itemsize) != self._header:
            self._last = -1  # the log was cut
        before, self.since = self.since, None
        at = max(named, self._last)
        for hop in range(_HOPS_MAX):
            size = self._front(log, at)
            if size == 0 and hop:
                self.since = now if before is None or at != self._end else before
                self._end = at
                break
            if not size:
                break
            if size > 0:
                self._last = at
            at += abs(size)
        self._header = self._read(log, self._last, HEADER.itemsize)

    def is_unchanged(self, log: CommitLog) -> bool:
        """Return whether the last record is unchanged and nothing follows it; one read of each."""
        return (
            self.since is not None
            and self._front(log, self._end) == 0
            and self._read(log, self._last, HEADER.itemsize) == self._header
        )

    def _front(self, log: CommitLog, at: int) -> int | None:
        """Size of the record at an offset. Below 0: the rest of its segment. 0: the end. None: none of these."""
        segment = log.find(at)
        if segment is None:
            return 0 if at == log.stop else None
        if segment.stop - at < BLANK_BYTES:
            return at - segment.stop
        front = self._read(log, at, BLANK_BYTES)
        if front is None or len(front) < BLANK_BYTES:
            return None
        size, magic = _FRONT.unpack(front)
        if magic == MAGIC_BLANK:
            return at - segment.stop
        if magic in {MAGIC_V1, MAGIC_V2} and size >= MIN_RECORD_BYTES:
            return int(size)
        return None if any(front) else 0

    def _read(self, log: CommitLog, at: int, count: int) -> bytes | None:
        segment = log.find(at) if at >= 0 else None
        if segment is None:
            return None
        try:
            return self._fs.read(segment.path, at - segment.base, count)
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Sighting:
    """Queues that changed between two looks.

    Attributes
    ----------
    moved
        Queues whose bounds or entries may have changed since the look before, and new queues.
    rewritten
        Moved queues whose last known entry changed or is gone; any that moved where nothing tells that.
    gone
        Queues that were there and are not any more.
    """

    moved: frozenset[QueueKey] = field(default_factory=frozenset)
    rewritten: frozenset[QueueKey] = field(default_factory=frozenset)
    gone: frozenset[QueueKey] = field(default_factory=frozenset)


class _State(NamedTuple):
    """What decides where messages are looked for: is a writer at work, was there a crash, and what no queue tells."""

    is_live: bool
    is_aborted: bool
    revision: object


class QueueWatch:
    """Watches queues of one store for a reader that follows them. Not thread-safe.

    Parameters
    ----------
    snapshot
        The store.
    topic_wanted, queue_wanted
        Which topics, and which of their queues, are watched.
    fs, clock
        The file system, and seconds that never fall; for tests.

    Attributes
    ----------
    snapshot
        The store as of the last look that found a change.
    ends
        One past the last message of every queue that is watched, by topic and queue id, as of the last look.
    has_gap
        True once a part of the log was written and deleted between two looks. A queue of which nothing else was stored
        was not seen, unless queues without messages are listed: see `QueueEntries.lists_empty`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        topic_wanted: Callable[[str], bool],
        queue_wanted: Callable[[QueueKey], bool],
        *,
        fs: FileSystem | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fs = fs or snapshot.location.fs
        self._clock = clock
        self.snapshot = snapshot
        self._paths = StorePaths(snapshot.path)
        self._topic_wanted = topic_wanted
        self._queue_wanted = queue_wanted
        self._root: DirectoryStamp | None = None
        self._topics: dict[str, DirectoryStamp | None] = {}
        self._queue_keys: dict[str, list[QueueKey]] = {}
        self._keys: set[QueueKey] | None = None
        self._places: dict[QueueKey, tuple[Piece, ...]] = {}
        self._log_min: dict[QueueKey, int] = {}
        self._named: dict[QueueKey, int] = {}
        """Physical offset of the last message of each queue."""
        self._log_end = LogFollower(self._fs)
        self._mark: tuple[object, ...] | None = None
        self._looked = -math.inf
        self._state: _State | None = None
        self._tails = QueueTails(self._fs, clock)
        self._unplaced: set[QueueKey] = set()
        """Queues whose tails are to be placed before the next wait."""
        self.ends: dict[str, dict[int, int]] = {}
        self.has_gap = False
        self._seen_stop: int | None = None
        """Physical offset up to which the log was seen, if queues without messages are not listed."""

    def look(self) -> Sighting:
        """See what changed since the last look; at the first all queues are new."""
        before, now = self.snapshot, self._clock()
        if now - self._looked < before.entries.look_every_s:
            return Sighting()
        look = before.look()  # before the queues are looked at: no batch shows in some of them alone
        is_live = before.location.is_owned()
        mark = self._fs.stamp(self._paths.batch_mark), self._fs.stamp(self._paths.confirmed)
        aborted = self._fs.size(self._paths.abort) is not None
        stop = cache(look.log.data_stop)
        state = _State(is_live, aborted, before.entries.revision(stop, mark))
        same = self._state == state
        holds = mark == self._mark and look.log is before.log
        if same and holds and self._is_quiet(now) and not self._root_changed():
            return Sighting()
        self._looked, self._mark = now, mark
        if same:
            listed = self._listed(state)
            moved, rewritten = self._changed_places()
        else:
            # The store changed hands, or its queues are derived and the log grew: nothing known holds any more.
            if state.revision is None:
                stop()  # it may be read by its log from now on: what is appended after this is for the next look
            self.snapshot = snapshot = before.newer()
            self._state = state = _State(snapshot.is_live, aborted, snapshot.entries.revision(stop, mark))
            self._note_gap(stop)
            listed = self._listed(state)
            moved, rewritten = snapshot.entries.changed(before.entries, listed)
        moved |= listed - self._places.keys()
        gone = self._places.keys() - listed
        if same:
            self.snapshot = before.newer(look, moved | gone)
        for key in gone:
            self._drop(key)
        moved -= gone
        self._take(moved)
        if len(self._places) >= _MANY_QUEUES:
            self._log_end.follow(self.snapshot.log, max(self._named.values()), self._clock())
        self._unplaced |= moved | gone
        return Sighting(frozenset(moved), frozenset(rewritten & moved), frozenset(gone))

    def wait(self, limit_s: float, pause: Callable[[float], bool]) -> bool:
        """Wait until a known queue has another entry, at most ``limit_s`` seconds; the next look tells which.

        Queues without a file, changes on another host, and stores whose queues are derived end no wait early; nor do
        more than a thousand queues. Neither does a message that replicas confirm or a DLedger group agrees on, since
        its entry is older.

        Parameters
        ----------
        limit_s
            When to return in any case.
        pause
            Sleeps for so many seconds; True to end the wait.

        Returns
        -------
        bool
            True if ``pause`` has ended it.
        """
        if self.snapshot.awaits_others or len(self._places) > _TAILS_MAX or not any(self._places.values()):
            return pause(limit_s)
        self._tails.place({key: self._places.get(key, ()) for key in self._unplaced})
        self._unplaced.clear()
        return self._tails.wait(limit_s, pause)

    def bounds(self, key: QueueKey) -> QueueBounds:
        """The offsets that a watched queue holds, as of the last look.

        The first offset is searched again only after segments of the log were deleted.
        """
        if self._log_min[key] != self.snapshot.log.min_offset:
            self._take([key])
        return self.snapshot.bounds(key)

    def _note_gap(self, stop: Callable[[], int]) -> None:
        log = self.snapshot.log
        self.has_gap |= self._seen_stop is not None and log.min_offset > self._seen_stop
        self._seen_stop = None if self.snapshot.entries.lists_empty else stop()

    def _is_quiet(self, now: float) -> bool:
        """Return whether nothing can have moved: the end of the log stands where it stood when all queues were read."""
        since = self._log_end.since
        return (
            len(self._places) >= _MANY_QUEUES
            and since is not None
            and self._looked - since >= _DISPATCHED_S
            and now - self._looked < _BELIEVED_S
            and self._log_end.is_unchanged(self.snapshot.log)
        )

    def _changed_places(self) -> tuple[set[QueueKey], set[QueueKey]]:
        """The queues whose bytes changed, and among them the queues whose last known entry changed."""
        moved: set[QueueKey] = set()
        rewritten: set[QueueKey] = set()
        known = [(key, piece) for key, pieces in self._places.items() for piece in pieces]
        read = self._read([piece for _, piece in known])
        for (key, piece), found in zip(known, read, strict=True):
            if found != piece.still:
                moved.add(key)
                if piece.begins_with_last and not _same_front(found, piece.still):
                    rewritten.add(key)
        return moved, rewritten

    def _root_changed(self) -> bool:
        return self._root is None or self._root.has_changed(self._fs)

    def _listed(self, state: "_State") -> set[QueueKey]:
        """The queues that are wanted and there."""
        if state.revision is not None:
            ids = {topic: ids for topic, ids in self.snapshot.entries.ids.items() if self._topic_wanted(topic)}
            return {key for key in keys_of(ids) if self._queue_wanted(key)}
        root = self._paths.consume_queues
        if self._root_changed():
            self._root = DirectoryStamp.of(self._fs, root)
            names = [entry.name for entry in self._fs.list_dir(root) if entry.is_dir]
            wanted = {name for name in names if is_readable_topic(name) and self._topic_wanted(name)}
            for name in self._topics.keys() - wanted:
                del self._topics[name], self._queue_keys[name]
            self._topics |= dict.fromkeys(wanted - self._topics.keys())
            self._keys = None
        for name, stamp in self._topics.items():
            if stamp is None or stamp.has_changed(self._fs):
                directory = os.path.join(root, name)
                self._topics[name] = DirectoryStamp.of(self._fs, directory)
                queue_ids, _ = list_queue_ids(self._fs, directory)
                self._queue_keys[name] = [key for key in keys_of({name: queue_ids}) if self._queue_wanted(key)]
                self._keys = None
        if self._keys is None:
            self._keys = {key for keys in self._queue_keys.values() for key in keys}
        return self._keys

    def _take(self, keys: Collection[QueueKey]) -> None:
        """Ask the reader for the bounds of queues, then note the bytes at the places of their next entries."""
        snapshot = self.snapshot
        ends = [bounds.max_offset for bounds in snapshot.bounds_of(list(keys))]
        places = [_pieces(snapshot.entries.files_of(key), end) for key, end in zip(keys, ends, strict=True)]
        snapshot.sources.queues.drop_fronts()
        found = iter(self._read([piece for listed, _ in places for piece in listed]))
        for key, end, (listed, absent) in zip(keys, ends, places, strict=True):
            self.ends.setdefault(key.topic, {})[key.queue_id] = end
            self._log_min[key] = snapshot.log.min_offset
            self._places[key] = pieces = (*(_stilled(piece, next(found)) for piece in listed), *absent)
            last = pieces[0].still if pieces and pieces[0].begins_with_last else None
            self._named[key] = -1 if last is None else int.from_bytes(last[:8], "big", signed=True)

    def _drop(self, key: QueueKey) -> None:
        del self._places[key], self._log_min[key], self._named[key]
        of_topic = self.ends[key.topic]
        del of_topic[key.queue_id]
        if not of_topic:
            del self.ends[key.topic]

    def _read(self, pieces: Sequence[Piece]) -> list[bytes | None]:
        """Read pieces as they are now; the names of files for a directory."""
        files = iter(self._fs.read_each([piece[:3] for piece in pieces if not piece.path.endswith("/")]))
        return [self._names(piece.path) if piece.path.endswith("/") else next(files) for piece in pieces]

    def _names(self, directory: str) -> bytes | None:
        return b"".join(entry.name.encode() for entry in self._fs.list_dir(directory) if entry.is_file) or None


def _pieces(queue: ConsumeQueue | None, end: int) -> tuple[list[Piece], list[Piece]]:
    """Pieces of a queue's last and next entry: those in listed files, and those in files that do not exist yet."""
    if queue is None:
        return [], []
    at = end * ENTRY_BYTES
    last, following = find(queue.segments, at - ENTRY_BYTES), find(queue.segments, at)
    listed, absent = [], []
    if last is not None:
        length = 2 * ENTRY_BYTES if last is following else ENTRY_BYTES
        listed.append(Piece(last.path, at - ENTRY_BYTES - last.base, length, None, begins_with_last=True))
    if following is None:
        # A queue without files may begin anywhere, a full one continues where its file ends.
        path = os.path.join(queue.directory, segment_name(at) if queue.segments else "")
        absent.append(Piece(path, 0, ENTRY_BYTES, None, begins_with_last=False))
    elif last is not following:
        listed.append(Piece(following.path, at - following.base, ENTRY_BYTES, None, begins_with_last=False))
    return listed, absent


def _stilled(piece: Piece, found: bytes | None) -> Piece:
    """The piece with the bytes just read, zeros after its known entry: the next look reports an entry there."""
    known = ENTRY_BYTES if piece.begins_with_last else 0
    return piece if found is None else piece._replace(still=found[:known].ljust(len(found), b"\0"))


def _same_front(found: bytes | None, still: bytes | None) -> bool:
    return found is not None and still is not None and found[:ENTRY_BYTES] == still[:ENTRY_BYTES]
