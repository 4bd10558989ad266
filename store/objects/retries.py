"""Attempts at a request, and the errors of requests.

::

    request ──► answer
       └──► Failure ──► THROTTLED, BUSY, BROKEN, SLOW, SHORT  ──►  wait, again      until attempts or time are used up
                   └──► UNKNOWN  ──►  the same, three times
                   └──► UNREACHED  ──►  the same, for 5 s
                   └──► EXPIRED  ──►  once again with new credentials
                   └──► MISSING, REPLACED, DENIED, REFUSED  ──►  an error at once

Waits are random up to 0.1 s, 0.2 s, 0.4 s, … 15 s, so that tasks which were throttled together return one by one.
A `Failure` has no text of the library: such texts repeat URLs and answers of servers, and these can have credentials.
"""

import enum
import errno
import logging
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from ..errors import (
    MissingFileError,
    NoSpaceError,
    Remedy,
    SegmentLogError,
    StoreClosedError,
    StoreIOError,
    UnreadableError,
)
from .object_store import ObjectInfo
from .requests import GAP_BYTES

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 15.0
_UNREACHED_S: Final = 5.0  # an endpoint that never answered is most likely mistyped
_UNKNOWN_MAX: Final = 3  # a machine's own credentials may be late, but most often there are none
_LOGGED_FROM: Final = 3  # attempts: the first ones are everyday life of an object store


class FailureKind(enum.Enum):
    """Failures of a request; the value is the advice to the user."""

    MISSING = "The object was deleted, or the URL names another place: open the store again"
    REPLACED = "Another process wrote this object while it was read: open the store again to read the new one"
    DENIED = "Grant these credentials access to the object, or pass others: docs/remote.md"
    EXPIRED = "Renew the credentials and run it again; credentials of a role or profile are renewed without a restart"
    UNKNOWN = "Set credentials in the environment, or run on a machine with a role: docs/remote.md"
    REFUSED = "Compare the URL and its options, such as the endpoint and the region, with docs/remote.md"
    THROTTLED = "Read with fewer tasks at once, or raise retry_timeout and max_retries"
    BUSY = "The object store is at fault: try again later, or raise retry_timeout and max_retries"
    NO_BUCKET = "Compare the bucket and the endpoint with docs/remote.md, or make the bucket: segmentlog makes none"
    FROZEN = "The object is in an archive class, such as Glacier: restore it first, as the provider describes"
    CLOCK = "Set the clock of this machine: requests are signed with its time"
    UNREACHED = "Compare the endpoint with docs/remote.md, and look at the network and the proxy on the way to it"
    BROKEN = "Look at the network, at the endpoint and at the proxy between this machine and the object store"
    SLOW = "Look at the network, or raise the option timeout, and read_timeout for a server that pauses"
    FULL = "Make room there, or raise the limit, and run it again"
    SHORT = "A proxy or the object store cuts answers short: read without it, or compare the object with its source"


OS_FAILURES: Final = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), FailureKind.DENIED),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FailureKind.FULL),
}
"""Failures of a file system, by their numbers."""
_AGAIN: Final = frozenset(
    {
        FailureKind.THROTTLED,
        FailureKind.BUSY,
        FailureKind.BROKEN,
        FailureKind.SLOW,
        FailureKind.SHORT,
        FailureKind.UNKNOWN,
        FailureKind.UNREACHED,
    }
)
_reached: Final[set[int]] = set()
"""Places that have answered in this process."""


class Failure(Exception):  # noqa: N818 - it becomes an error only after the last attempt
    """A request that failed.

    ``found`` is what the server or the network did: ``503 SlowDown``. ``is_unknown`` is true if the request may have
    had its effect all the same.
    """

    def __init__(self, kind: FailureKind, found: str, *, is_unknown: bool = False) -> None:
        super().__init__(found)
        self.kind, self.found, self.is_unknown = kind, found, is_unknown


class Retries(NamedTuple):
    """Attempts at a request, and the time after which none begins."""

    most: int = 10
    seconds: float = 180.0


class Request(NamedTuple):
    """A request, as errors name it."""

    doing: str  # a noun: "reading [0, 100)"
    path: str  # URL of the object
    start: int | None = None


def attempted(
    request: Request, call: Callable[[], T], retries: Retries, renew: Callable[[], object] | None = None
) -> T:
    """Return the result of ``call``; repeated after each `Failure` that may pass. ``renew`` renews credentials."""
    began = time.monotonic()
    tried, renewed = 0, False
    while True:
        try:
            return call()
        except Failure as failure:
            tried += 1
            took = time.monotonic() - began
            if failure.kind is FailureKind.EXPIRED and renew is not None and not renewed:
                renewed = True
                renew()
                continue
            wait = random.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**tried))  # noqa: S311 - no secret
            most = min(retries.most, _UNKNOWN_MAX) if failure.kind is FailureKind.UNKNOWN else retries.most
            seconds = min(retries.seconds, _UNREACHED_S) if failure.kind is FailureKind.UNREACHED else retries.seconds
            ends = not threading.main_thread().is_alive()  # the process waits for this thread to end
            if failure.kind not in _AGAIN or tried > most or took + wait > seconds or ends:
                raise _error(request, failure, tried, took) from None  # the library's text may have credentials
            if tried >= _LOGGED_FROM:
                _log.warning("%s of %s: %s, attempt %d", request.doing, request.path, failure.found, tried)
            time.sleep(wait)


def _error(request: Request, failure: Failure, tried: int, took: float) -> SegmentLogError:
    fix = failure.kind.value
    problem = f"{request.doing} failed: {failure.found}"
    if failure.kind is FailureKind.MISSING:
        return MissingFileError(problem, path=request.path, offset=request.start, fix=fix, errno=errno.ENOENT)
    if failure.kind in {FailureKind.DENIED, FailureKind.EXPIRED, FailureKind.UNKNOWN}:
        remedies = (Remedy.NAME_CREDENTIALS,)
        return UnreadableError(problem, path=request.path, offset=request.start, fix=fix, remedies=remedies)
    if failure.kind is FailureKind.FULL:
        return NoSpaceError(problem, path=request.path, fix=fix)
    if tried > 1:
        problem += f", after {tried} attempts in {took:.1f} s"
    numbers = {FailureKind.REPLACED: errno.ESTALE, FailureKind.NO_BUCKET: errno.ENOENT}
    number = numbers.get(failure.kind, errno.EIO)
    return StoreIOError(problem, path=request.path, offset=request.start, fix=fix, errno=number)


class RepeatedObjects(ABC):
    """Base of the adapters: an object store belongs to the process that opened it, and its calls are `attempted`."""

    _renew: Callable[[], object] | None = None  # takes new credentials
    gap_bytes = GAP_BYTES

    def __init__(self, url: str, retries: Retries | None = None, options: object = None) -> None:
        self.url = url
        self._retries = retries or Retries()
        self._pid = os.getpid()
        self._place = hash((url, options))  # options have secrets, which are not kept

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an object store is opened in the process that uses it")

    @staticmethod
    def _check(info: ObjectInfo | None, stop: int, etag: str | None) -> None:
        """Raise a `Failure` unless an object has bytes up to ``stop``, and this etag."""
        if info is None:
            raise Failure(FailureKind.MISSING, "no such object")
        if etag is not None and info.etag != etag:
            raise Failure(FailureKind.REPLACED, f"the object was replaced: its etag is {info.etag}, not {etag}")
        if stop > info.size:
            raise Failure(FailureKind.REPLACED, f"the object has {info.size} bytes")

    @abstractmethod
    def _failure(self, error: Exception) -> Failure:
        """Classify an error of the library; another error is raised as it is."""

    @property
    def _is_reached(self) -> bool:
        return self._place in _reached

    def _tried(self, doing: str, key: str, call: Callable[[], T], start: int | None = None) -> T:
        if os.getpid() != self._pid:
            raise StoreClosedError(
                "this object store was opened before a fork, and its connections are its parent's",
                path=self.url,
                fix="Open it again in this process",
            )

        def once() -> T:
            try:
                found = call()
            except StoreClosedError:
                raise
            except Exception as error:  # noqa: BLE001 - classified, and raised again if it is another kind
                failure = error if isinstance(error, Failure) else self._failure(error)
                if failure.kind is not FailureKind.UNREACHED:
                    _reached.add(self._place)
                elif self._is_reached:
                    failure.kind = FailureKind.BROKEN
                raise failure from None
            _reached.add(self._place)
            return found

        return attempted(Request(doing, f"{self.url}/{key}", start), once, self._retries, self._renew)
