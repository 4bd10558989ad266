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

MISSING, OTHER, RIGHTS, UNSAFE, FULL = MissingFileError, StoreIOError, UnreadableError, UnsafeFileError, NoSpaceError
TABLE = [  # errno, while reading, writing, syncing
    *((number, MISSING, MISSING, MISSING) for number in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)),
    (errno.EEXIST, OTHER, ExistingFileError, OTHER),
    *((number, RIGHTS, RIGHTS, OTHER) for number in (errno.EACCES, errno.EPERM)),
    (errno.EROFS, OTHER, RIGHTS, OTHER),
    *((number, UNSAFE, UNSAFE, OTHER) for number in (errno.ELOOP, errno.ENXIO, errno.EISDIR)),
    *((number, OTHER, FULL, OTHER) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    *((number, OTHER, OTHER, OTHER) for number in (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)),
    *((number, OTHER, OTHER, OTHER) for number in (errno.EINTR, 9999, None)),
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
        assert number != errno.ENAMETOOLONG or error.fix == "Pass a path whose parts have at most 255 bytes"
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
def test_a_cache_keeps_to_its_share_of_the_limit_which_an_error_names(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int, share: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert descriptor_budget(most, share) == expected
    error = read_error(failed(errno.EMFILE), "opening", "/store/file")
    assert limit == resource.RLIM_INFINITY or f"may have {limit} files open" in str(error)
