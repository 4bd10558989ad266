import time
from pathlib import Path

import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.joined_fs import JoinedFileSystem


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    for root, names in ((first, "bc"), (second, "ab")):
        (root / "below").mkdir(parents=True)
        for name in names:
            (root / "below" / name).write_bytes(f"{name} of {root.name}".encode())
    (first / "beside").write_bytes(b"beside")
    return first, second


@pytest.fixture
def joined(roots: tuple[Path, Path]) -> JoinedFileSystem:
    return JoinedFileSystem(LocalFileSystem(), {str(roots[0] / "below"): str(roots[1] / "below")})


def test_names_of_both_are_listed_once_and_in_order(joined: JoinedFileSystem, roots: tuple[Path, Path]) -> None:
    found = joined.list_dir(str(roots[0] / "below"))
    assert [(each.name, each.size) for each in found] == [("a", 11), ("b", 10), ("c", 10)]
    assert [each.name for each in joined.list_dir(str(roots[0]))] == ["below", "beside"]


def test_the_first_is_read_where_both_have_a_file(joined: JoinedFileSystem, roots: tuple[Path, Path]) -> None:
    below = roots[0] / "below"
    for name, content in (("a", b"a of second"), ("b", b"b of first"), ("c", b"c of first")):
        path = str(below / name)
        assert joined.size(path) == joined.data_end(path) == len(content)
        assert joined.read(path, 0, 99) == content
        assert joined.read(path, 2, 2) == b"of"
        assert joined.map(path).tobytes() == content
        assert joined.map(path, 2, 4).tobytes() == b"of"


def test_pieces_of_many_files_come_from_either_root_and_a_path_in_neither_is_missing(
    joined: JoinedFileSystem, roots: tuple[Path, Path]
) -> None:
    below, before = roots[0] / "below", str(roots[0] / "beside")
    asked = [(str(below / name), 0, 6) for name in "abcd"] + [(before, 0, 3)]
    assert joined.read_each(iter(asked)) == [b"a of s", b"b of f", b"c of f", None, b"bes"]
    assert joined.read_each([]) == []
    joined.list_dir(str(below))
    (below / "c").rename(roots[1] / "below" / "c")
    assert joined.read(str(below / "c"), 0, 99) == b"c of first", "a file that moved since it was listed is found"
    for path in (str(below / "d"), str(roots[0] / "d"), str(roots[0] / "belower" / "a")):
        assert joined.size(path) is joined.stamp(path) is None
        assert joined.list_dir(path) == []
        for ask in (lambda path: joined.read(path, 0, 1), joined.data_end):
            with pytest.raises(FileNotFoundError):
                ask(path)


def test_a_stamp_changes_with_the_names_of_either(joined: JoinedFileSystem, roots: tuple[Path, Path]) -> None:
    below, fs = roots[0] / "below", LocalFileSystem()
    seen = {joined.stamp(str(below))}
    for number, root in enumerate((roots[1], roots[0], roots[1])):
        time.sleep(0.02)  # longer than a tick of the file system's clock
        (root / "below" / f"new {number}").touch()
        seen.add(joined.stamp(str(below)))
    assert len(seen) == 4
    last = joined.stamp(str(below))
    assert last is not None
    assert last[1] == max(each[1] for root in roots if (each := fs.stamp(str(root / "below"))) is not None)
    assert joined.stamp(str(roots[0])) == fs.stamp(str(roots[0]))
    assert joined.stamp(str(below / "a")) == fs.stamp(str(roots[1] / "below" / "a"))
    assert joined.stamp(str(below / "c")) == fs.stamp(str(below / "c"))


def test_a_front_is_the_only_file_of_both(joined: JoinedFileSystem, roots: tuple[Path, Path]) -> None:
    (roots[0] / "alone").mkdir()
    (roots[0] / "alone" / "f").write_bytes(b"f")
    below, alone = str(roots[0] / "below"), str(roots[0] / "alone")
    for remove in ((), (roots[0] / "below" / "c",), (roots[1] / "below" / "a",)):
        for path in remove:
            path.unlink()
        found, beside = joined.fronts([below, alone], 100)
        assert beside is not None
        assert beside.data == b"f"
    assert found is not None  # b, which both have: that of the first
    assert (found.name, found.data) == ("b", b"b of first")
    (roots[1] / "below" / "b").rename(roots[1] / "below" / "a")
    (roots[1] / "below" / "b").write_bytes(b"x")
    assert joined.fronts([below], 100) == [None]
    (roots[0] / "below" / "b").unlink()
    assert joined.fronts([below], 100) == [None]
