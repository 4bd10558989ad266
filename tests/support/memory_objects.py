"""MemoryObjects: an object store in memory that counts what it is asked for; tests plant faults by subclasses."""

import errno
import hashlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from segmentlog.store.errors import MissingFileError, StoreIOError
from segmentlog.store.format.message import Bytes
from segmentlog.store.objects.object_store import ObjectInfo
from segmentlog.store.objects.requests import GAP_BYTES


class MemoryObjects:
    """An `ObjectStore`; safe for threads."""

    def __init__(self, url: str = "memory://bucket/prefix") -> None:
        self.url = url
        self.gap_bytes = GAP_BYTES
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self.calls: Counter[str] = Counter()
        self.bytes_read = 0
        self.now_ms = 1_700_000_000_000
        self._lock = threading.Lock()

    def list(self, prefix: str = "", *, is_confirmed: bool = True) -> Iterator[ObjectInfo]:
        self.calls["list"] += 1
        with self._lock:
            found = sorted(info for key, (_, info) in self.objects.items() if key.startswith(prefix))
        yield from found

    def folders(self) -> Sequence[str]:
        self.calls["folders"] += 1
        return sorted({key.split("/")[0] for key in self.objects if "/" in key})

    def head(self, key: str) -> ObjectInfo | None:
        self.calls["head"] += 1
        found = self.objects.get(key)
        return None if found is None else found[1]

    def get(self, key: str, start: int, stop: int, etag: str | None = None) -> Bytes:
        self.calls["get"] += 1
        found = self.objects.get(key)
        if found is None:
            raise MissingFileError("no such object", path=f"{self.url}/{key}", errno=errno.ENOENT)
        data, info = found
        if etag is not None and info.etag != etag:
            raise StoreIOError("the object was replaced", path=f"{self.url}/{key}", errno=errno.EIO)
        if not 0 <= start <= stop <= len(data):
            raise StoreIOError(
                f"the object has {len(data)} bytes, and [{start}, {stop}) was asked for",
                path=f"{self.url}/{key}",
                errno=errno.EIO,
            )
        self.bytes_read += stop - start
        return np.frombuffer(data, np.uint8)[start:stop]

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        self.calls["put"] += 1
        content = bytes(data)
        with self._lock:
            if if_absent and key in self.objects:
                return None
            self.now_ms += 1
            info = ObjectInfo(key, len(content), hashlib.md5(content).hexdigest(), self.now_ms)
            self.objects[key] = content, info
        return info

    def delete(self, keys: Sequence[str]) -> None:
        self.calls["delete"] += 1
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)
