import logging
from pathlib import Path

import pytest

from segmentlog.store.errors import FormatError, UnsafeFileError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.segments import SegmentFile, find, list_segments


def make(directory: Path, **sizes: int) -> None:
    directory.mkdir(exist_ok=True)
    for name, size in sizes.items():
        with (directory / name.removeprefix("_")).open("wb") as file:
            file.truncate(size)


def listed(*directories: Path) -> list[tuple[int, int]]:
    return [(s.base, s.size) for s in list_segments(LocalFileSystem(), [str(d) for d in directories])]


def test_order_is_by_base_and_other_names_are_left_alone(tmp_path: Path) -> None:
    make(tmp_path / "log", _00000000000000002048=100, _00000000000000000000=1024, _00000000000000001024=0)
    for name in ("notes.txt", ".hidden", "0000000000000000000x", "-0000000000000000001", "0" * 21, "１２３"):
        (tmp_path / "log" / name).touch()
    assert listed(tmp_path / "log") == [(0, 1024), (1024, 0), (2048, 100)]
    assert listed(tmp_path / "missing") == []
    make(tmp_path / "far", _09223372036854775807=1, _09223372036854775797=10, _99999999999999999999=0)
    assert listed(tmp_path / "far") == [((1 << 63) - 11, 10)], "beyond 63 bits there is nothing"


def test_several_directories_make_one_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "a", _00000000000000000000=10, _00000000000000000020=10)
    make(tmp_path / "b", _00000000000000000010=10, _00000000000000000020=7)
    with caplog.at_level(logging.WARNING):
        assert listed(tmp_path / "a", tmp_path / "b") == [(0, 10), (10, 10), (20, 10)]
    assert f"{tmp_path}/b/00000000000000000020 is left out" in caplog.text
    assert listed(tmp_path / "b", tmp_path / "a") == [(0, 10), (10, 10), (20, 7)]


def test_links_directories_and_files_of_2_gib_are_refused_as_segments(tmp_path: Path) -> None:
    for name, plant in (("link", "symlink_to"), ("directory", "mkdir")):
        (tmp_path / name).mkdir()
        path = tmp_path / name / f"{0:020d}"
        getattr(path, plant)(*(["/dev/null"] if plant == "symlink_to" else []))
        with pytest.raises(UnsafeFileError, match=name) as raised:
            listed(tmp_path / name)
        assert raised.value.path == str(path)
    make(tmp_path / "large", _00000000000000000000=1 << 31)
    with pytest.raises(FormatError, match="2147483648 bytes"):
        listed(tmp_path / "large")
    make(tmp_path / "largest", _00000000000000000000=(1 << 31) - 1)
    assert listed(tmp_path / "largest") == [(0, (1 << 31) - 1)]


SEGMENTS = [SegmentFile(0, 10, "a"), SegmentFile(10, 5, "b"), SegmentFile(20, 10, "c")]


def test_a_directory_among_files_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As of a light queue `%LMQ%x/1`, which brokers up to 5.1.0 put into the directory of queue 1 of `%LMQ%x`."""
    (tmp_path / "0").mkdir()
    (tmp_path / f"{40:020d}").write_bytes(bytes(40))
    assert [each.base for each in list_segments(LocalFileSystem(), [str(tmp_path)])] == [40]
    assert f"{tmp_path}/0 is left out: it is a directory among files" in caplog.text


def test_an_offset_finds_its_segment() -> None:
    found = {-1: None, 0: "a", 9: "a", 10: "b", 14: "b", 15: None, 20: "c", 29: "c", 30: None}
    assert {offset: (each := find(SEGMENTS, offset)) and each.path for offset in found} == found
    assert find([], 0) is None
