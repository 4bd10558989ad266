import json
from pathlib import Path

import pytest

from segmentlog.jobs.state_file import check_asked, write_whole
from segmentlog.store import ConfigError


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


@pytest.mark.parametrize("asked", [{"topic": ["b"]}, {"topic": ["a"], "tag": "x"}, {}])
def test_another_job_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="--state s is of another job"):
        check_asked("s", {"topic": ["a"]}, asked)
