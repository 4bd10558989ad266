"""FaultyObjects: an object store in memory that fails, or is killed, at one of its calls.

::

    calls     list get put put put delete …
    fault     at call n   BEFORE   the call has no effect
                          AFTER    it has its effect, and the answer is lost
"""

import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from segmentlog.store.errors import StoreIOError
from segmentlog.store.format.message import Bytes
from segmentlog.store.objects.object_store import ObjectInfo

from .memory_objects import MemoryObjects


class Killed(BaseException):
    """The process ends here, as far as the code under test can tell."""


class Fault(Enum):
    BEFORE = "before"
    AFTER = "after"
    KILL_BEFORE = "kill before"
    KILL_AFTER = "kill after"


class FaultyObjects(MemoryObjects):
    """Counts all calls in `count`; the fault is at call number ``at``, from 0, and happens once."""

    def __init__(self, fault: Fault = Fault.BEFORE, at: int = -1) -> None:
        super().__init__()
        self.now_ms = time.time_ns() // 1_000_000
        self.count = 0
        self._fault = fault
        self._at = at

    @classmethod
    def copy(cls, former: MemoryObjects, fault: Fault = Fault.BEFORE, at: int = -1) -> "FaultyObjects":
        made = cls(fault, at)
        made.objects = dict(former.objects)
        made.now_ms = max(made.now_ms, former.now_ms)  # the wall clock may have been set back
        return made

    def _call(self, call: Callable[[], Any]) -> Any:
        number, self.count = self.count, self.count + 1
        if number != self._at:
            return call()
        if self._fault in {Fault.AFTER, Fault.KILL_AFTER}:
            call()
        if self._fault in {Fault.KILL_BEFORE, Fault.KILL_AFTER}:
            raise Killed
        raise StoreIOError("planted", path=self.url, errno=5)

    def list(self, prefix: str = "", *, is_confirmed: bool = True) -> Iterator[ObjectInfo]:
        found: tuple[ObjectInfo, ...] = self._call(lambda: tuple(MemoryObjects.list(self, prefix)))
        return iter(found)

    def head(self, key: str) -> ObjectInfo | None:
        found: ObjectInfo | None = self._call(lambda: MemoryObjects.head(self, key))
        return found

    def get(self, key: str, start: int, stop: int, etag: str | None = None) -> Bytes:
        found: Bytes = self._call(lambda: MemoryObjects.get(self, key, start, stop, etag))
        return found

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        found: ObjectInfo | None = self._call(lambda: MemoryObjects.put(self, key, data, if_absent=if_absent))
        return found

    def delete(self, keys: Sequence[str]) -> None:
        # One after the other, as object stores do: a fault leaves some of them.
        for key in keys:
            self._call(lambda key=key: MemoryObjects.delete(self, [key]))
