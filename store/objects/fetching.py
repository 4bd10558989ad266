"""Ranges of objects, fetched in few requests into the cache, or into memory.

::

    ranges ──► merged ──► minus blocks that are cached ──► minus requests on their way ──► 8 to 16 MiB each ──► threads
                                                                                               │
    bytes  ◄── map of the cache file ◄── blocks written ◄──────────────────────────────────────┤
           ◄── memory, without a cache: at most 128 MiB wait to be read ◄──────────────────────┘
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future  # noqa: TC003 - NamedTuple resolves its types
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from ..errors import MissingFileError, MissingObjectError, Remedy
from ..format.message import Bytes
from .block_cache import BLOCK_BYTES, BlockCache, CachedFile
from .object_store import ObjectStore
from .requests import REQUEST_BYTES, at_once, divided, merged, submit

HELD_BYTES: Final = 128 << 20
"""Bytes that are on their way or wait in memory, at most."""
_BATCH_BYTES: Final = HELD_BYTES // 2
_AGAIN_BYTES: Final = 1 << 10
"""Bytes that are asked for again so that a read is within one request."""


class Extent(NamedTuple):
    """Known bytes of an object, and its etag; None for objects whose name states their content."""

    size: int
    etag: str | None


class ByteSpan(NamedTuple):
    """A range of an object."""

    key: str
    start: int
    stop: int


class _FetchedSpan(NamedTuple):
    span: ByteSpan
    data: "Future[Bytes | None]"  # None: it is in the cache


class Fetcher:
    """Bytes of objects that do not change; safe for threads."""

    def __init__(self, objects: ObjectStore, extents: Mapping[str, Extent], cache: BlockCache | None) -> None:
        self._objects, self._extents, self._cache = objects, extents, cache
        self._lock = threading.Lock()
        self._pieces: dict[str, list[_FetchedSpan]] = {}
        self._pid = os.getpid()

    def fetch(self, spans: Iterable[ByteSpan]) -> None:
        """Bring spans here and wait for them; without a cache, as many as may wait in memory."""
        spans = list(spans)
        before: list[_FetchedSpan] = []
        with self._needed(spans):
            for number, batch in enumerate(_batches(spans, self._objects.gap_bytes)):
                if number > 1 and self._holds(before):
                    break  # the rest is fetched by its read
                begun = self._begin(batch, None)
                for piece in before:
                    self._result(piece)
                before = begun
            for piece in before:
                self._result(piece)

    def _holds(self, pieces: Iterable[_FetchedSpan]) -> bool:
        """Return whether bytes of these requests stay in memory, since there is no cache or no room in it."""
        for piece in pieces:
            self._result(piece)
        return any(piece.data.result() is not None for piece in pieces)

    def fetch_soon(self, spans: Iterable[ByteSpan]) -> None:
        """Begin to bring spans here, as many as may be on their way."""
        self._begin(spans, HELD_BYTES)

    def _needed(self, spans: Iterable[ByteSpan]) -> contextlib.AbstractContextManager[object]:
        """Keep the cached files of these objects until the context ends."""
        if self._cache is None:
            return contextlib.nullcontext()
        return self._cache.needed({file.name for key in {each.key for each in spans} if (file := self._file(key))})

    def bytes(self, key: str, start: int, stop: int) -> Bytes:
        """Return a range of an object, read-only; mapped if it is cached."""
        span = ByteSpan(key, start, stop)
        file = self._file(key)
        found = None if file is None else file.map(start, stop)
        if found is not None:
            return found
        if file is not None or stop - start > REQUEST_BYTES:
            self._begin([span], None)
        pieces = self._overlapping(span)
        for piece in pieces:
            self._result(piece)
        # Still None if the cache has no room, or was deleted: the bytes of these requests are in memory.
        found = None if file is None else file.map(start, stop)
        return self._assembled(span, pieces) if found is None else found

    def _assembled(self, span: ByteSpan, pieces: Iterable[_FetchedSpan]) -> Bytes:
        parts: list[tuple[int, Bytes]] = []
        for piece in pieces:
            data = piece.data.result()
            if data is not None:
                parts.append((piece.span.start, data))
                if piece.span.start <= span.start and span.stop <= piece.span.stop:
                    return data[span.start - piece.span.start : span.stop - piece.span.start]
        held = [(start, start + data.size) for start, data in parts]
        asked = [each for gap in _without(span.start, span.stop, held) for each in divided(*gap)]
        got = at_once([partial(self._got, ByteSpan(span.key, *each)) for each in asked]) if asked else []
        if len(got) == 1 and asked[0] == (span.start, span.stop):
            return got[0]
        made = np.empty(span.stop - span.start, np.uint8)
        for start, data in [*parts, *zip((each[0] for each in asked), got, strict=True)]:
            begin, end = max(start, span.start), min(start + data.size, span.stop)
            if begin < end:
                made[begin - span.start : end - span.start] = data[begin - start : end - start]
        made.flags.writeable = False
        return made

    def _begin(self, spans: Iterable[ByteSpan], most: int | None) -> list[_FetchedSpan]:
        """Send the requests for spans that are neither here nor on their way; ``most`` bounds what is held."""
        wanted: dict[str, list[tuple[int, int]]] = {}
        for key, start, stop in spans:
            wanted.setdefault(key, []).append((start, min(stop, self._extents[key].size)))
        begun: list[_FetchedSpan] = []
        with self._lock:
            if self._pid != os.getpid():  # requests of the parent
                self._pid = os.getpid()
                self._pieces.clear()
            self._forget()
            held = sum(each.span.stop - each.span.start for pieces in self._pieces.values() for each in pieces)
            for key, ranges in wanted.items():
                file = self._file(key)
                pieces = self._pieces.setdefault(key, [])
                for start, stop in self._absent(file, ranges, pieces, self._objects.gap_bytes):
                    for each in divided(start, stop, BLOCK_BYTES if file is not None else 1):
                        held += each[1] - each[0]
                        if most is not None and held > most:
                            return begun
                        span = ByteSpan(key, *each)
                        piece = _FetchedSpan(span, submit(partial(self._one, span, file)))
                        pieces.append(piece)
                        begun.append(piece)
        return begun

    @staticmethod
    def _absent(
        file: CachedFile | None, ranges: list[tuple[int, int]], pieces: list[_FetchedSpan], gap: int
    ) -> Iterator[tuple[int, int]]:
        """Parts of ranges that need a request."""
        coming = [(each.span.start, each.span.stop) for each in pieces]
        if file is None:
            for first, last in merged(ranges, gap):
                for start, stop in _without(first, last, coming):
                    # A range that begins in the request before would be read as a copy of both. Scans ask for these.
                    yield first if start - first <= _AGAIN_BYTES else start, stop
            return
        absent = (run for each in merged(ranges, gap) for run in file.missing(*each))
        # Ranges on their way are left out before the rest is merged: merging first would ask again for cached blocks
        # between them.
        lacking = merged((rest for each in absent for rest in _without(*each, coming)), gap)
        yield from merged((rest for each in lacking for rest in _without(*each, coming)), 0)

    def _one(self, span: ByteSpan, file: CachedFile | None) -> Bytes | None:
        data = self._got(span)
        return None if file is not None and file.put(span.start, data) else data

    def _got(self, span: ByteSpan) -> Bytes:
        try:
            return self._objects.get(*span, self._extents[span.key].etag)
        except MissingFileError as error:
            raise MissingObjectError(
                f"{error.problem}, and the manifest or list of this store has it",
                path=error.path,
                offset=error.offset,
                fix="Open the store again. `segmentlog archive verify` names what an archive lacks",
                remedies=(Remedy.SKIP_LOST,),
                errno=error.errno,
            ) from None

    def _file(self, key: str) -> CachedFile | None:
        if self._cache is None:
            return None
        size, etag = self._extents[key]
        return self._cache.file(self._objects.url, key, etag, size)

    def _overlapping(self, span: ByteSpan) -> list[_FetchedSpan]:
        """Requests for bytes of a range: that which has all of them, or several."""
        with self._lock:
            pieces = self._pieces.get(span.key, ())
            found = [each for each in pieces if each.span.start < span.stop and span.start < each.span.stop]
        whole = (each for each in found if each.span.start <= span.start and span.stop <= each.span.stop)
        return next(([each] for each in whole), found)

    def _result(self, piece: _FetchedSpan) -> None:
        """Wait for a request; one that failed is forgotten, so that the next read tries again."""
        try:
            piece.data.result()
        except BaseException:
            with self._lock:
                if piece in (pieces := self._pieces.get(piece.span.key, [])):
                    pieces.remove(piece)
            raise

    def _forget(self) -> None:
        """Drop requests whose bytes are cached, and the oldest that wait in memory beyond the bound."""
        waiting: list[_FetchedSpan] = []
        for key, pieces in list(self._pieces.items()):
            kept = [each for each in pieces if not _is_cached(each)]
            self._pieces[key] = kept
            waiting += [each for each in kept if each.data.done()]
            if not kept:
                del self._pieces[key]
        excess = sum(each.span.stop - each.span.start for each in waiting) - _BATCH_BYTES
        for piece in waiting:
            if excess <= 0:
                break
            excess -= piece.span.stop - piece.span.start
            self._pieces[piece.span.key].remove(piece)


def _batches(spans: Iterable[ByteSpan], gap: int) -> Iterator[list[ByteSpan]]:
    """Merge spans and divide them into lists of about `_BATCH_BYTES`."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    for key, start, stop in spans:
        wanted.setdefault(key, []).append((start, stop))
    batch, size = list[ByteSpan](), 0
    for key, ranges in wanted.items():
        for start, stop in merged(ranges, gap):
            for first in range(start, stop, _BATCH_BYTES):
                last = min(first + _BATCH_BYTES, stop)
                if batch and size + last - first > _BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
                batch.append(ByteSpan(key, first, last))
                size += last - first
    if batch:
        yield batch


def _is_cached(piece: _FetchedSpan) -> bool:
    return piece.data.done() and piece.data.exception() is None and piece.data.result() is None


def _without(start: int, stop: int, taken: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Parts of a range that no other range covers."""
    for taken_start, taken_stop in merged(taken, 0):
        if taken_stop <= start or taken_start >= stop:
            continue
        if start < taken_start:
            yield start, taken_start
        start = max(start, taken_stop)
    if start < stop:
        yield start, stop
