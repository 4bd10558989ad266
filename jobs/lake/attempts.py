"""Attempts to write a part: their files, and the removal of what killed runs have left.

::

    LOCATION/_segmentlog/attempts/JOB/ID lease, locked by the process that writes; lists the files before the commit
    DATA/segmentlog/ID/…/NAME.parquet    files of the attempt's tasks

    lease is       the table names ID     then its run was killed
    locked                                nothing: it runs
    free           no                     before the commit: files and lease are removed
    free           yes                    after the commit: files that it does not list are removed, and the lease

The kernel frees the lock of a process that dies. Tasks that outlive it fail: the directory of their files is gone.
Other file systems than that of this machine have no such locks. There the tools of the table remove such files.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Container, Sequence
from typing import Final

from pyarrow import fs

from segmentlog.store import ConfigError

from .parquet_files import DataFile, sync

_FOLDER: Final = "segmentlog"


class Attempt:
    """One attempt to write a part."""

    def __init__(self, directory: str, lease: int | None = None, lease_path: str = "", local: str = "") -> None:
        self.id = directory.rsplit("/", 1)[-1]
        self.directory = directory
        self._lease, self._lease_path, self._local = lease, lease_path, local

    def list_files(self, files: Sequence[DataFile]) -> None:
        """Note the files that are going to be committed."""
        if self._lease is not None:
            os.pwrite(self._lease, json.dumps([each.path for each in files]).encode(), 0)
            os.fsync(self._lease)

    def finish(self, files: Sequence[DataFile]) -> None:
        """Remove all files but the committed ones, and the lease."""
        if self._lease is not None:
            _sweep(self._local, {each.path for each in files})
            os.unlink(self._lease_path)
            self.release()

    def release(self) -> None:
        """Free the lock: the next run looks at this attempt if its lease is there."""
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None


class Attempts:
    """Attempts of a job.

    Parameters
    ----------
    location, data
        Places of the table and of its data files, as URIs or paths.
    job
    """

    def __init__(self, location: str, data: str, job: str) -> None:
        try:
            system, self._location = fs.FileSystem.from_uri(location)
            self._system, self._data = fs.FileSystem.from_uri(data)
        except (OSError, ValueError) as error:
            fix = "Use a path, or a URI of a file system that pyarrow has"
            raise ConfigError(f"location {location} cannot be opened: {error}", fix=fix) from error
        self._uri, self._job = data.rstrip("/"), job
        self._is_local = isinstance(system, fs.LocalFileSystem) and isinstance(self._system, fs.LocalFileSystem)

    def start(self) -> Attempt:
        name = uuid.uuid4().hex[:16]
        uri = f"{self._uri}/{_FOLDER}/{name}"
        path = f"{self._data.rstrip('/')}/{_FOLDER}/{name}"
        if not self._is_local:
            self._system.create_dir(path, recursive=True)
            return Attempt(uri)
        lease_path = os.path.join(self._leases, name)
        os.makedirs(self._leases, exist_ok=True)
        lease = _lock_new(lease_path)
        os.makedirs(path)
        sync(path)
        return Attempt(uri, lease, lease_path, path)

    def clean(self, committed: Callable[[], Container[str]], settled_s: float = 0) -> int:
        """Remove files of killed runs; return how many attempts they were.

        Parameters
        ----------
        committed
            Returns the names of the attempts whose files the table has now.
        settled_s
            How long a commit may still arrive at the catalog after its process has died.
        """
        count = 0
        if not self._is_local or not os.path.isdir(self._leases):
            return count
        for name in sorted(os.listdir(self._leases)):
            path = os.path.join(self._leases, name)
            with contextlib.suppress(FileNotFoundError), _Taken(path) as lease:
                if lease is None or time.time() - os.stat(lease).st_mtime < settled_s:
                    continue
                files = os.path.join(self._data, _FOLDER, name)
                # Asked with the lock: until then the attempt may have been committed.
                if name not in committed():
                    shutil.rmtree(files, ignore_errors=True)
                elif listed := os.pread(lease, os.fstat(lease).st_size, 0):
                    _sweep(files, set(json.loads(listed)))
                os.unlink(path)
                count += 1
        return count

    @property
    def _leases(self) -> str:
        return os.path.join(self._location, "_segmentlog", "attempts", self._job)


class _Taken:
    """A lease that is opened, and locked if its process is gone."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def __enter__(self) -> int | None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return self._descriptor

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)


def _lock_new(path: str) -> int:
    """Create and lock a lease. Another run may find it in between, and take it for that of a dead one."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _sweep(directory: str, kept: set[str]) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.relpath(path, directory) not in kept:
                os.unlink(path)
