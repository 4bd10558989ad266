"""Disk space of a path."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from segmentlog.store.errors import StoreIOError
from segmentlog.store.files.disk import space_of


def test_the_space_is_the_file_systems(tmp_path: Path) -> None:
    found = space_of(str(tmp_path))
    assert found is not None
    usage = shutil.disk_usage(tmp_path)
    assert found.total == usage.total
    assert found.total > found.free >= found.usable > 0
    assert abs(found.usable - usage.free) < 1 << 30  # others write meanwhile


def test_a_path_that_does_not_exist_has_none(tmp_path: Path) -> None:
    assert space_of(str(tmp_path / "missing")) is None


def test_an_error_names_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: str) -> os.statvfs_result:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "statvfs", failing)
    with pytest.raises(StoreIOError, match="asking for the space"):
        space_of("/data/store")
