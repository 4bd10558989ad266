"""Permissions of new files and directories."""

import os
from pathlib import Path

import pytest

from segmentlog.store.files.modes import directory_mode, file_mode


@pytest.mark.parametrize(
    ("above", "file", "directory"),
    [
        (0o700, 0o600, 0o700),
        (0o750, 0o640, 0o750),
        (0o755, 0o644, 0o755),
        (0o775, 0o644, 0o775),
        (0o777, 0o644, 0o777),
        (0o1777, 0o644, 0o755),
        (0o2770, 0o640, 0o770),
    ],
)
def test_nothing_is_wider_than_the_directory_it_is_in(tmp_path: Path, above: int, file: int, directory: int) -> None:
    tmp_path.chmod(above)
    path = os.path.join(tmp_path, "new")
    assert file_mode(path) == file
    assert directory_mode(path) == directory


def test_there_must_be_a_directory(tmp_path: Path) -> None:
    for mode in (file_mode, directory_mode):
        with pytest.raises(FileNotFoundError):
            mode(os.path.join(tmp_path, "none", "new"))
