from pathlib import Path

import pytest

from segmentlog.store import UnsafeFileError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.follow import DelayProgress, delay_progress


def read(path: Path) -> DelayProgress:
    return delay_progress(LocalFileSystem(), str(path))


def test_levels_and_timers_are_read(tmp_path: Path) -> None:
    assert read(tmp_path) == DelayProgress({}, None)
    config = tmp_path / "config"
    config.mkdir()
    assert read(tmp_path) == DelayProgress({}, None)
    (config / "delayOffset.json").write_text('{"offsetTable":{1:13,"2":6,3:null,"x":4,"' + "9" * 5_000 + '":1\n\t}\n}')
    (config / "timercheck").write_bytes((1_700_000_000_000).to_bytes(8, "big").ljust(4096, b"\0"))
    assert read(tmp_path) == DelayProgress({1: 13, 2: 6}, 1_700_000_000_000)


@pytest.mark.parametrize("timers", [b"", b"short", bytes(4096), b"\xff" * 8])
def test_an_unset_time_of_timers_is_unknown(timers: bytes, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "timercheck").write_bytes(timers)
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":[]}')
    assert read(tmp_path) == DelayProgress({}, None)


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "config").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError):
        read(tmp_path)
