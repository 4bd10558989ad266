"""Which error of the store each failed system call is."""

import errno
import os
import pickle
import resource

import pytest

from segmentlog.store import SegmentLogError
from segmentlog.store.errors import (
    ExistingFileError,
    MissingFileError,
    NoSpaceError,
    StoreIOError,
    UnreadableError,
    UnsafeFileError,
)
from segmentlog.store.files.os_errors import Writing, descriptor_budget, read_error, write_error

TABLE = [  # errno, while reading, writing, syncing
    (errno.ENOENT, MissingFileError, MissingFileError, MissingFileError),
    (errno.ENOTDIR, MissingFileError, MissingFileError, MissingFileError),
    (errno.ENAMETOOLONG, MissingFileError, MissingFileError, MissingFileError),
    (errno.EEXIST, StoreIOError, ExistingFileError, StoreIOError),
    (errno.EACCES, UnreadableError, UnreadableError, StoreIOError),
    (errno.EPERM, UnreadableError, UnreadableError, StoreIOError),
    (errno.EROFS, StoreIOError, UnreadableError, StoreIOError),
    (errno.ELOOP, UnsafeFileError, UnsafeFileError, StoreIOError),
    (errno.ENXIO, UnsafeFileError, UnsafeFileError, StoreIOError),
    (errno.EISDIR, UnsafeFileError, UnsafeFileError, StoreIOError),
    (errno.ENOSPC, StoreIOError, NoSpaceError, StoreIOError),
    (errno.EDQUOT, StoreIOError, NoSpaceError, StoreIOError),
    (errno.EFBIG, StoreIOError, NoSpaceError, StoreIOError),
    (errno.EIO, StoreIOError, StoreIOError, StoreIOError),
    (errno.EMFILE, StoreIOError, StoreIOError, StoreIOError),
    (errno.ENFILE, StoreIOError, StoreIOError, StoreIOError),
    (errno.ENOMEM, StoreIOError, StoreIOError, StoreIOError),
    (errno.ESTALE, StoreIOError, StoreIOError, StoreIOError),
    (errno.EINTR, StoreIOError, StoreIOError, StoreIOError),
    (9999, StoreIOError, StoreIOError, StoreIOError),
    (None, StoreIOError, StoreIOError, StoreIOError),
]


def failed(number: int | None) -> OSError:
    return OSError("no number") if number is None else OSError(number, os.strerror(number))


def raised(number: int | None, *, is_sync: bool) -> SegmentLogError:
    with pytest.raises(SegmentLogError) as found, Writing("/store/file", "moving", is_sync=is_sync):
        raise failed(number)
    return found.value


@pytest.mark.parametrize(("number", "reading", "writing", "syncing"), TABLE)
def test_each_errno_has_its_error(number: int | None, reading: type, writing: type, syncing: type) -> None:
    found = [
        read_error(failed(number), "reading", "/store/file", 7),
        write_error(failed(number), "writing", "/store/file"),
        raised(number, is_sync=False),
        raised(number, is_sync=True),
    ]
    assert [type(error) for error in found] == [reading, writing, writing, syncing]
    for error in found:
        assert error.path == "/store/file"
        assert error.fix
        if isinstance(error, StoreIOError):
            assert error.errno == (errno.EIO if number is None else number)
            assert pickle.loads(pickle.dumps(error)).errno == error.errno
    assert found[0].offset == 7


def test_an_error_of_the_store_passes_unchanged() -> None:
    error = NoSpaceError("full", path="/other")
    assert read_error(error, "reading", "/store/file") is error
    assert write_error(error, "writing", "/store/file") is error
    with pytest.raises(NoSpaceError) as found, Writing("/store/file", is_sync=True):
        raise error
    assert found.value is error
    with pytest.raises(KeyError), Writing("/store/file"):
        raise KeyError


def test_too_many_open_files_names_the_limit() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert f"may have {soft} files open" in str(read_error(failed(errno.EMFILE), "opening", "/store/file"))


@pytest.mark.parametrize(
    ("limit", "most", "share", "expected"),
    [
        (1024, 512, 4, 256),
        (1 << 20, 512, 4, 512),
        (64, 16, 16, 4),
        (8, 16, 16, 1),
        (resource.RLIM_INFINITY, 16, 16, 16),
    ],
)
def test_a_cache_keeps_to_its_share_of_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int, share: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert descriptor_budget(most, share) == expected
