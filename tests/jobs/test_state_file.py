import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.jobs.state_file import StateFile, check_asked, write_whole
from segmentlog.store import ConfigError, FormatError


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path, making = str(tmp_path / "state"), str(tmp_path / "making")
    for document in ({"a": [1, 2]}, {"b": 3}):
        write_whole(path, document, making)
        assert json.loads(Path(path).read_text()) == document
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_a_document_that_is_not_json_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path, making = str(tmp_path / "state"), str(tmp_path / "making")
    write_whole(path, {"a": 1}, making)
    with pytest.raises(TypeError):
        write_whole(path, {"a": object()}, making)
    assert json.loads(Path(path).read_text()) == {"a": 1}


def test_the_same_job_is_known_in_types_of_json() -> None:
    check_asked("s", {"topic": ["a"], "tag": None}, {"topic": ("a",)})


def test_a_job_that_cannot_write_its_file_leaves_nothing_beside_it(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"{}"
        raise OSError(errno.ENOSPC, "No space left on device")

    with StateFile.open(str(tmp_path / "state")) as state, pytest.raises(ConfigError, match="No space left"):
        state.replace(lines())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("asked", [{"topic": ["b"]}, {"topic": ["a"], "tag": "x"}, {}])
def test_another_job_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="--state s is of another job"):
        check_asked("s", {"topic": ["a"]}, asked)


def test_a_file_is_locked_from_its_first_moment_and_when_it_is_replaced(tmp_path: Path) -> None:
    path, link = str(tmp_path / "state"), tmp_path / "link"
    link.symlink_to(path)
    with StateFile.open(path) as file:
        for _ in range(2):
            for each in (path, str(link)):
                with pytest.raises(ConfigError, match=f"--state {each} is used by another process"):
                    StateFile.open(each)
            file.replace([b'{"asked":{}}\n', b'{"row":1}'])
    with StateFile.open(str(link)) as file:
        file.replace(file.lines())
    assert link.is_symlink()
    with StateFile.open(path) as file:
        assert file.load("job", {}, lambda _, rows: rows) == [{"row": 1}]


def test_a_job_that_has_not_begun_leaves_no_file(tmp_path: Path) -> None:
    with StateFile.open(str(tmp_path / "state")):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["{", "[1]", '{"other":1}', '{"asked":3}', '{"asked":{}}'])
def test_the_file_of_another_kind_of_job_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state"
    path.write_text(content)
    with StateFile.open(str(path)) as file, pytest.raises(FormatError, match="is not the state file of a kind"):
        file.load("kind", {}, lambda head, _: head["wanted"])
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("name", "problem"), [("/dev/null", "is not a regular file"), ("missing/state", "No such file")]
)
def test_what_cannot_be_a_state_file_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        StateFile.open(str(tmp_path / name))
