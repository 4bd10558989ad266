"""Object stores by pyarrow.fs: HDFS, and others where the library obstore is not installed.

::

    get     open ──► size and time compared ──► read        an opened file stays the file that was opened
    put     NAME.making-… ──► move to NAME                  visible as a whole; locally, put if absent is a link

These file systems have no etags: size and modification time identify a content. pyarrow has no call that creates a
file unless it exists, so put if absent is local only. On HDFS archives are read, and pushed by other means.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyarrow import fs as arrow_fs

from ..errors import ConfigError, UnsupportedStoreError
from ..format.message import Bytes
from .object_store import ObjectInfo
from .options import Options
from .retries import OS_FAILURES, Failure, FailureKind, RepeatedObjects, Retries

T = TypeVar("T")

_MAKING: Final = ".making-"
_WRITTEN_BYTES: Final = 16 << 20
_S3_NAMES: Final = {
    "aws_access_key_id": "access_key",
    "aws_secret_access_key": "secret_key",
    "aws_session_token": "session_token",
    "aws_region": "region",
    "aws_endpoint": "endpoint_override",
}


def open_arrow(url: str, given: Options, retries: Retries) -> "ArrowObjects":
    """Open a URL by pyarrow.fs; `ConfigError` if this build of pyarrow, or the machine, has no such file system."""
    scheme, _, rest = url.rstrip("/").partition("://")
    try:
        if scheme == "file":
            return ArrowObjects(url.rstrip("/"), arrow_fs.LocalFileSystem(), unquote(rest), retries, is_local=True)
        if scheme.startswith("s3"):
            names = {ours: given.config[name] for name, ours in _S3_NAMES.items() if name in given.config}
            anonymous = given.config.get("aws_skip_signature") == "true"
            return ArrowObjects(url.rstrip("/"), arrow_fs.S3FileSystem(anonymous=anonymous, **names), rest, retries)
        found, root = arrow_fs.FileSystem.from_uri(url)
    except (OSError, pa.ArrowException, ValueError, AttributeError) as error:
        raise ConfigError(
            f"pyarrow.fs cannot open it ({type(error).__name__})",  # its text may repeat a value
            path=url,
            fix="HDFS needs libhdfs.so, JAVA_HOME, HADOOP_HOME and CLASSPATH: docs/remote.md",
        ) from None
    return ArrowObjects(url.rstrip("/"), found, root, retries)


class ArrowObjects(RepeatedObjects):
    """An `ObjectStore`."""

    def __init__(self, url: str, fs: Any, root: str, retries: Retries | None = None, *, is_local: bool = False) -> None:
        super().__init__(url, retries)
        self._fs, self._root, self._is_local = fs, root.rstrip("/"), is_local

    def list(self, prefix: str = "", *, is_confirmed: bool = True) -> Iterator[ObjectInfo]:  # noqa: ARG002 - it is whole
        folder = prefix.rpartition("/")[0]

        def once() -> Sequence[ObjectInfo]:
            infos = map(self._info, filter(_is_file, self._listed(folder, recursive=True)))
            return sorted(info for info in infos if info.key.startswith(prefix) and _MAKING not in info.key)

        return iter(self._tried("listing", prefix, once))

    def folders(self) -> Sequence[str]:
        def once() -> Sequence[str]:
            found = self._listed("")
            return sorted(each.base_name for each in found if each.type == arrow_fs.FileType.Directory)

        return self._tried("listing folders", "", once)

    def _listed(self, folder: str, *, recursive: bool = False) -> Sequence[Any]:
        selector = arrow_fs.FileSelector(self._path(folder), allow_not_found=True, recursive=recursive)
        try:
            found: Sequence[Any] = self._fs.get_file_info(selector)
        except FileNotFoundError:
            raise Failure(FailureKind.BROKEN, "a folder appeared or disappeared while it was listed") from None
        return found

    def head(self, key: str) -> ObjectInfo | None:
        return self._tried("looking at it", key, lambda: self._head(key))

    def _head(self, key: str) -> ObjectInfo | None:
        found = self._fs.get_file_info([self._path(key)])[0]
        return self._info(found) if _is_file(found) else None

    def get(self, key: str, start: int, stop: int, etag: str | None = None) -> Bytes:
        def once() -> Bytes:
            with self._fs.open_input_file(self._path(key)) as file:
                self._check(self._head(key), stop, etag)  # after it was opened: a later replacement has another time
                data = np.frombuffer(file.read_at(stop - start, start), np.uint8)
            if data.size != stop - start:
                raise Failure(FailureKind.SHORT, f"{data.size} of {stop - start} bytes came")
            return data

        return self._tried(f"reading [{start}, {stop})", key, once, start)

    def put(self, key: str, data: Bytes, *, if_absent: bool = False) -> ObjectInfo | None:
        if if_absent and not self._is_local:
            raise UnsupportedStoreError(
                "this file system cannot create a file unless it exists, by pyarrow.fs",
                path=f"{self.url}/{key}",
                fix="Push to object storage or to a directory, and copy the archive from there",
            )
        return self._tried(f"writing {data.size} bytes", key, partial(self._put, key, data, if_absent=if_absent))

    def _put(self, key: str, data: Bytes, *, if_absent: bool) -> ObjectInfo | None:
        path = self._path(key)
        making = f"{path}{_MAKING}{secrets.token_hex(4)}"
        self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        try:
            with self._fs.open_output_stream(making) as file:
                for first in range(0, data.size, _WRITTEN_BYTES):
                    file.write(data[first : first + _WRITTEN_BYTES].data)
            if self._is_local:
                with open(making, "rb") as written:
                    os.fsync(written.fileno())
            made = self._fs.get_file_info([making])[0]
            if made.size != data.size:
                raise Failure(FailureKind.SHORT, f"{made.size} of {data.size} bytes were written")
            if if_absent:
                os.link(making, path)
            else:
                self._fs.move(making, path)
        except FileExistsError:
            return None
        finally:
            with contextlib.suppress(OSError):
                self._fs.delete_file(making)
        return self._head(key)

    def delete(self, keys: Sequence[str]) -> None:
        def once(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(self._path(key))

        for key in keys:
            self._tried("deleting", key, partial(once, key))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _info(self, found: Any) -> ObjectInfo:
        modified_ns = found.mtime_ns or 0
        key = found.path[len(self._root) + 1 :]
        return ObjectInfo(key, found.size, f"{found.size}-{modified_ns}", modified_ns // 1_000_000)

    def _failure(self, error: Exception) -> Failure:
        if isinstance(error, FileNotFoundError):
            return Failure(FailureKind.MISSING, "no such object")
        if isinstance(error, PermissionError):
            return Failure(FailureKind.DENIED, "permission denied")
        if not isinstance(error, OSError):
            raise error
        name = errno.errorcode.get(error.errno or 0, "no error number")
        return Failure(OS_FAILURES.get(error.errno or 0, FailureKind.BROKEN), f"the file system failed ({name})")


def _is_file(found: Any) -> bool:
    return bool(found.type == arrow_fs.FileType.File)
