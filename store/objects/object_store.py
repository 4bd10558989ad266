"""Interface to object stores; modules outside this package know no other call.

::

    archive, remote_fs ──► ObjectStore ──► retries, errors of the store's own ──► obstore (S3, GCS, Azure, HTTP, local)
                               ▲                                            └──► pyarrow.fs (HDFS, others)
              tests replace this one thing to inject faults

Keys are texts without a leading slash, below the prefix that the object store was opened with. Objects are never
changed, only replaced as a whole: an etag names one content. Clients live in the process that made them: an
`ObjectStore` is made from a URL after a fork, and is never pickled.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ..format.message import Bytes

S3: Final = "s3"
GCS: Final = "gs"
AZURE: Final = "az"
KINDS: Final = {
    "s3": S3, "s3a": S3, "s3n": S3, "gs": GCS, "gcs": GCS,
    "az": AZURE, "azure": AZURE, "adl": AZURE, "abfs": AZURE, "abfss": AZURE,
    "http": "", "https": "", "file": "", "hdfs": "", "viewfs": "",
}  # fmt: skip
"""Kind of options by the scheme of a URL."""
PROBE: Final = ".probe-"
"""Beginning of the names of objects that test put if absent. A killed process leaves one; it has no meaning."""


def is_object_url(path: str) -> bool:
    """Return whether a path is the URL of an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.lower() in KINDS


class ObjectInfo(NamedTuple):
    """One object, as it was when it was asked for."""

    key: str
    size: int
    etag: str
    modified_ms: int  # since 1970, by the clock of the object store


class ObjectStore(Protocol):
    """Five calls, modelled on obspec, and `delete` for what nothing refers to any more.

    All calls raise `StoreIOError` after their retries, with the object and the range. A missing object is a
    `MissingFileError`. An object whose etag is not the asked one, or whose bytes are too few, is an error, never data.
    """

    url: str
    """URL of the prefix, without credentials."""
    gap_bytes: int
    """Bytes between two ranges of an object up to which they are read by one request."""

    def list(self, prefix: str = "", *, is_confirmed: bool = True) -> Iterator[ObjectInfo]:
        """All objects whose keys begin with ``prefix``, ascending by key.

        Unless it ``is_confirmed``, the list may end early where a server or proxy cut a page, for half the requests.
        """

    def folders(self) -> Sequence[str]:
        """First parts of the keys that have a slash, ascending: the folders of this place, without their content."""

    def head(self, key: str) -> ObjectInfo | None:
        """Size, etag and time of an object; None if it does not exist."""

    def get(self, key: str, start: int, stop: int, etag: str | None = None) -> Bytes:
        """Bytes ``[start, stop)`` of an object, all of them, (n,) uint8, read-only."""

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        """Write an object, visible as a whole or not at all; None if it exists and ``if_absent`` is set.

        ``data`` may be a mapped file of any size: it is sent in parts.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that do not exist are no error."""
