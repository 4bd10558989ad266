"""Object stores by the library obstore: S3 and everything compatible, GCS, Azure, HTTP, local directories.

::

    call ──► attempted (retries) ──► obstore: GET, HEAD, PUT, POST ?delete     one request, not repeated by the library
                                     obstore: list, PUT in parts               the library repeats its requests itself
         ◄── bytes, etag compared, length compared
         ◄── Failure ◄── status, <Code>, kind of the transport's error         the text of the library is dropped

obstore can repeat 429 and 5xx and resume bodies. But a short answer passes as data, and a repeated PUT IF ABSENT would
take its own first attempt for another writer. So requests are repeated here.
"""

import contextlib
import errno
import importlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

import numpy as np

from ..errors import StoreClosedError, UnsupportedStoreError
from ..format.message import Bytes
from .object_store import PROBE, ObjectInfo
from .retries import OS_FAILURES, Failure, FailureKind, RepeatedObjects, Retries

T = TypeVar("T")

_PARTS_FROM: Final = 64 << 20  # larger objects are sent in parts
_PART_BYTES: Final = 16 << 20
_PARTS_AT_ONCE: Final = 4
_LAST_CHARACTER: Final = "\U0010ffff"  # after all others in the order of keys
_DELETED_MAX: Final = 1000  # keys of one request of S3
_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Z][A-Za-z ]*))?")
_CODE: Final = re.compile(r"<Code>([A-Za-z.]{1,64})</Code>|\"(?:code|error)\": *\"([A-Za-z_.]{1,64})\"")
_TRANSPORT: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
_CONNECTING: Final = re.compile(r"::Error\(\s*Connect,")  # a timeout, too
_NOT_DELETED: Final = re.compile(r'DeleteFailed \{[^}]*code: "([A-Za-z.]{1,64})"')  # of one key, with status 200
_LOCAL: Final = {**OS_FAILURES, errno.ENOTDIR: FailureKind.MISSING}
_OS_ERROR: Final = re.compile(r"Os \{\s*code: (\d+),")
_EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "InvalidToken", "invalid_grant"}
)
_THROTTLED: Final = frozenset({"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "ServerBusy"})
_CODES: Final = {
    "NoSuchBucket": FailureKind.NO_BUCKET,
    "ContainerNotFound": FailureKind.NO_BUCKET,
    "NoSuchUpload": FailureKind.BUSY,  # an answer was lost, and the library asked again: the object is sent once more
    "InvalidObjectState": FailureKind.FROZEN,
    "BlobArchived": FailureKind.FROZEN,
    "RequestTimeTooSkewed": FailureKind.CLOCK,
}
_SERVERS_OF_ALL_KINDS: Final = frozenset({"S3Store", "HTTPStore"})
"""Clients of protocols that many servers implement, each server another part of the protocol."""
_METADATA: Final = ("//169.254.169.254", "//169.254.170.", "//metadata.google.internal", "//metadata/computeMetadata")
"""Services of machines that have credentials, asked if no others were found."""
_TRANSPORTS: Final = {
    "Timeout": (FailureKind.SLOW, "no answer in time"),
    "Connect": (FailureKind.UNREACHED, "no connection"),
    "Interrupted": (FailureKind.BROKEN, "the connection broke during the answer"),
}


_process: int | None = None
"""The process that has used the library: its threads are started once, and are in no process that is forked later."""


def _check_threads(url: str) -> None:
    global _process  # noqa: PLW0603 - as the library's own threads
    if _process not in {None, os.getpid()}:
        raise StoreClosedError(
            "this process was forked from one that has read or written by URL: the library's threads are not in it, "
            "and each request would wait forever",
            path=url,
            fix="Start processes by multiprocessing.get_context('spawn'), or pass library=pyarrow with the options of "
            "the storage",
        )
    _process = os.getpid()


class ObstoreObjects(RepeatedObjects):
    """An `ObjectStore`. ``made`` returns a client with the retries that the library shall make, a new one if asked."""

    def __init__(
        self,
        url: str,
        made: Callable[..., Any],
        *,
        base: str = "",
        retries: Retries | None = None,
        options: object = None,
    ) -> None:
        super().__init__(url, retries, options)
        _check_threads(url)
        self._obstore: Any = importlib.import_module("obstore")
        self._base = base
        self._made = made
        self._lock = threading.Lock()
        self._has_condition: bool | None = None
        self._client, self._is_renewed = made(0, is_new=False), False
        self._patient: Any = None  # for requests that the library repeats
        self._is_local = type(self._client).__name__ == "LocalStore"

    def _renew(self) -> None:
        self._client, self._is_renewed = self._made(0, is_new=True), True
        self._patient = None

    def list(self, prefix: str = "", *, is_confirmed: bool = True) -> Iterator[ObjectInfo]:
        folder, _, _ = (self._base + prefix).rpartition("/")
        # Keys of S3 are in this order, those of other stores are not; and a list that breaks off begins again, with a
        # client that repeats its requests. To make one takes 4 ms, and most lists do not break off.
        is_first = True

        def once() -> Iterable[ObjectInfo]:
            nonlocal is_first
            client = self._client if is_first or not self._is_reached else self._repeating()
            is_first = False
            return self._listed(client, folder, is_confirmed=is_confirmed)

        found = self._tried("listing", prefix, once)
        return iter(sorted(info for info in found if info.key.startswith(prefix)))  # prefixes of the library: folders

    def _listed(self, client: Any, folder: str, *, is_confirmed: bool) -> Iterable[ObjectInfo]:
        """List a folder, until a list from the last key but one has the last key and no other."""
        # The library takes any XML for a page, such as the text of an error with status 200, and a page without a
        # token for the last one. A local directory has no pages.
        found: dict[str, ObjectInfo] = {}
        for number in count():
            *_, before, last = ["", "", *sorted(found)[-2:]]
            chunks = self._obstore.list(client, folder or None, offset=before or None)
            page = {meta["path"]: self._info(meta) for chunk in chunks for meta in chunk}
            if last and last not in page:
                raise Failure(FailureKind.SHORT, "a page of the list is not whole")
            is_whole = self._is_local or not is_confirmed or (number and page.keys() <= found.keys())
            found |= page
            if is_whole:
                break
        folders = {path.rpartition("/")[0] for path in found}
        # Consoles mark folders by empty objects, whose names the library gives without the slash at their end.
        return [info for path, info in found.items() if info.key and (info.size or path not in folders)]

    def folders(self) -> Sequence[str]:
        def once() -> Sequence[str]:
            found = self._obstore.list_with_delimiter(self._client, self._base.rstrip("/") or None)
            keys = [meta["path"] for meta in found["objects"]]
            last = max([*keys, *(f"{each}/{_LAST_CHARACTER}" for each in found["common_prefixes"])], default="")
            # A page without a token, as in `_listed`: nothing may be after the last folder.
            if last and type(self._client).__name__ == "S3Store":
                after = self._obstore.list(self._client, self._base or None, offset=last, chunk_size=1)
                if any(True for _ in after):
                    raise Failure(FailureKind.SHORT, "a page of the list is not whole")
            return sorted(each.removeprefix(self._base) for each in found["common_prefixes"])

        return self._tried("listing folders", "", once)

    def head(self, key: str) -> ObjectInfo | None:
        place = self._base + key

        def once() -> ObjectInfo | None:
            try:
                try:
                    return self._info(self._obstore.head(self._client, place))
                except Exception as error:
                    if self._failure(error).kind not in {FailureKind.DENIED, FailureKind.REFUSED}:
                        raise
                # The answer to HEAD has no text. That to GET tells why, such as expired credentials.
                return self._info(self._obstore.get(self._client, place).meta)
            except Exception as error:  # noqa: BLE001 - as in `_tried`
                failure = self._failure(error)
                if failure.kind is FailureKind.MISSING:
                    return None
                raise failure from None

        return self._tried("looking at it", key, once)

    def get(self, key: str, start: int, stop: int, etag: str | None = None) -> Bytes:
        options: dict[str, object] = {"range": (start, stop)}
        if etag is not None and etag.startswith('"'):  # a weak etag never matches, and the server does not know ours
            options["if_match"] = etag

        def once() -> Bytes:
            if start == stop:  # no request can ask for it
                self._check(self.head(key), stop, etag)
                return np.frombuffer(b"", np.uint8)
            answer = self._obstore.get(self._client, self._base + key, options=options)
            self._check(self._info(answer.meta), stop, etag)
            data = np.frombuffer(answer.bytes(), np.uint8)
            if tuple(answer.range) != (start, stop) or data.size != stop - start:
                raise Failure(FailureKind.SHORT, f"{data.size} of {stop - start} bytes came")
            return data

        return self._tried(f"reading [{start}, {stop})", key, once, start)

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        if if_absent:
            self._check_condition()
        unknown = False

        def once() -> bool:
            nonlocal unknown
            place = self._base + key
            try:
                if if_absent:
                    self._obstore.put(self._client, place, data, mode="create", use_multipart=False)
                elif data.size < _PARTS_FROM:
                    self._obstore.put(self._client, place, data, use_multipart=False)
                else:
                    parts = {"chunk_size": _PART_BYTES, "max_concurrency": _PARTS_AT_ONCE}
                    self._obstore.put(self._repeating(), place, data, use_multipart=True, **parts)
            except self._obstore.exceptions.AlreadyExistsError as error:
                if _is_conflict(str(error)):
                    raise _classified(str(error)) from None
                # An attempt whose answer was lost may have written this object.
                return unknown and self._is(key, data)
            except Exception as error:  # noqa: BLE001 - as in `_tried`
                failure = self._failure(error)
                unknown = unknown or failure.is_unknown
                raise failure from None
            return True

        if not self._tried(f"writing {data.size} bytes", key, once):
            return None
        info = self.head(key)
        if info is None or (info.size != data.size and not if_absent):
            found = "no such object" if info is None else f"{info.size} bytes"
            failure = Failure(FailureKind.REPLACED, f"{found} after {data.size} bytes were written")
            self._tried("writing", key, lambda: _raise(failure))
        return info

    def _check_condition(self) -> None:
        """Raise `UnsupportedStoreError` if the server ignores the condition: each of two archivers would win."""
        with self._lock:
            if self._has_condition is None:
                self._has_condition = type(self._client).__name__ not in _SERVERS_OF_ALL_KINDS or self._tried(
                    "testing put if absent", probe := f"{PROBE}{os.urandom(8).hex()}", partial(self._probed, probe)
                )
            if not self._has_condition:
                raise UnsupportedStoreError(
                    "the object store overwrites objects that are written with If-None-Match: *",
                    path=self.url,
                    fix="Push to a store with conditional writes, and copy the archive from there",
                )

    def _probed(self, probe: str) -> bool:
        place, data = self._base + probe, b"put if absent"
        put = partial(self._obstore.put, self._client, place, data, mode="create", use_multipart=False)
        exists = self._obstore.exceptions.AlreadyExistsError
        try:
            with contextlib.suppress(exists):  # of an attempt before this one
                put()
            try:
                put()
            except exists:
                return True
            return False
        finally:
            with contextlib.suppress(Exception):  # pruning deletes it
                self._obstore.delete(self._client, [place])

    def _is(self, key: str, data: Bytes) -> bool:
        info = self.head(key)
        return (
            info is not None and info.size == data.size and bool((self.get(key, 0, info.size, info.etag) == data).all())
        )

    def delete(self, keys: Sequence[str]) -> None:
        def deleted(several: Sequence[str], client: Any) -> None:
            try:
                self._obstore.delete(client, [self._base + each for each in several])
            except FileNotFoundError:
                if len(several) > 1:
                    for each in several:
                        deleted([each], client)

        for first in range(0, len(keys), _DELETED_MAX):
            part = keys[first : first + _DELETED_MAX]
            self._tried("deleting", part[0], partial(deleted, part, self._repeating()))

    def _repeating(self) -> Any:
        if self._patient is None:
            self._patient = self._made(self._retries.most, is_new=self._is_renewed)
        return self._patient

    def _info(self, meta: Any) -> ObjectInfo:
        modified_ms = int(meta["last_modified"].timestamp() * 1000)
        size: int = meta["size"]
        etag = meta["e_tag"] or f"{size}-{modified_ms}"  # plain HTTP servers may have none
        if meta["e_tag"] and not etag.startswith(('"', "W/")):
            etag = f'"{etag}"'  # Azure has quotes in answers, and none in lists
        return ObjectInfo(meta["path"].removeprefix(self._base), size, etag, modified_ms)

    def _failure(self, error: Exception) -> Failure:
        """Classify an error of the library; what is not known to be one is raised as it is."""
        if isinstance(error, Failure):
            return error
        kinds = self._obstore.exceptions
        if isinstance(error, FileNotFoundError):
            code = _CODE.search(str(error))
            is_other = code is not None and (code[1] or code[2]) in _CODES
            return _classified(str(error)) if is_other else Failure(FailureKind.MISSING, "no such object")
        if isinstance(error, (kinds.PreconditionError, kinds.NotModifiedError)):
            return Failure(FailureKind.REPLACED, "the object was replaced: 412 Precondition Failed")
        if not isinstance(error, (kinds.BaseError, OSError, ValueError)):
            raise error
        return _classified(str(error))


def _is_conflict(text: str) -> bool:
    """Return whether "already exists" is a 409: a request at the same time, whose end nobody knows."""
    status, code = _STATUS.search(text), _CODE.search(text)
    return status is not None and status[1] == "409" and (code is None or code[1] != "BlobAlreadyExists")


def _classified(text: str) -> Failure:
    status, code = _STATUS.search(text), _CODE.search(text)
    if any(address in text for address in _METADATA):
        return Failure(FailureKind.UNKNOWN, "no credentials were found")
    if status is None:
        transport = _TRANSPORT.search(text)
        if transport is None:
            return _classified_local(text)
        name = "Connect" if _CONNECTING.search(text) else transport[1]
        kind, found = _TRANSPORTS.get(name, (FailureKind.BROKEN, "the request could not be sent or was cut off"))
        return Failure(kind, found, is_unknown=name != "Connect")
    name, number = (code[1] or code[2]) if code else "", int(status[1])
    if name in _EXPIRED:
        kind = FailureKind.EXPIRED
    elif name in _CODES:
        kind = _CODES[name]
    elif name in _THROTTLED or number == 429:
        kind = FailureKind.THROTTLED
    elif name == "RequestTimeout" or number in {408, 409, 425} or (number >= 500 and number not in {501, 505}):
        kind = FailureKind.BUSY
    else:
        kind = {401: FailureKind.DENIED, 403: FailureKind.DENIED, 416: FailureKind.REPLACED}.get(
            number, FailureKind.REFUSED
        )
    return Failure(kind, f"{number} {name or (status[2] or '').strip()}".strip(), is_unknown=number >= 500)


def _classified_local(text: str) -> Failure:
    """Classify an error that is neither an answer nor one of the transport."""
    if number := _OS_ERROR.search(text):
        error = int(number[1])
        return Failure(_LOCAL.get(error, FailureKind.REFUSED), os.strerror(error))
    if refused := _NOT_DELETED.search(text):
        kinds = {
            "AccessDenied": FailureKind.DENIED,
            "InternalError": FailureKind.BUSY,
            "SlowDown": FailureKind.THROTTLED,
        }
        return Failure(kinds.get(refused[1], FailureKind.REFUSED), refused[1])
    for needle, kind_of_it, found in (
        ("NotPartial", FailureKind.REFUSED, "the server ignores ranges"),
        ("InvalidRange", FailureKind.REPLACED, "the object has fewer bytes"),
        ("redirect without LOCATION", FailureKind.REFUSED, "a redirect: the bucket is in another region"),
        ("empty path segment", FailureKind.REFUSED, "a key here has an empty part, as a//b has"),
        ("list response", FailureKind.SHORT, "the answer is not a list of objects"),
        ("Credential", FailureKind.DENIED, "no valid credentials"),
    ):
        if needle in text:
            return Failure(kind_of_it, found)
    return Failure(FailureKind.REFUSED, "the library refused the request")


def _raise(failure: Failure) -> None:
    raise failure
