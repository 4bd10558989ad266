import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.jobs.resending.progress import Progress
from segmentlog.store import ConfigError, FormatError, QueueKey, QueueRange

A, B = QueueKey("orders", 0), QueueKey("päckchen" * 9, 12)
RANGES = [QueueRange(A, 3, 40), QueueRange(B, 0, 7), QueueRange(A, 50, 60)]
ASKED = {"store": "/data", "topic": ["orders"], "queue": None}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def opened(path: str, ranges: list[QueueRange] = RANGES, *, again: bool = False, **asked: object) -> Progress:
    return Progress.open(path, ranges, ASKED | asked, again=again)


def test_a_job_continues_with_the_ranges_with_which_it_began(path: str) -> None:
    with opened(path) as progress:
        assert progress.left() == [RANGES[0], RANGES[2], RANGES[1]]
        progress.acknowledge(A, 18)
        progress.acknowledge(B, 7)
        job = progress.job
    with opened(path, [QueueRange(A, 0, 99)]) as progress:
        assert progress.job == job
        assert progress.left() == [QueueRange(A, 18, 40), QueueRange(A, 50, 60)]
        progress.acknowledge(A, 55)
        assert progress.left() == [QueueRange(A, 55, 60)]
        progress.acknowledge(A, 60)
        assert progress.is_finished
    with opened(path) as progress:
        assert (progress.left(), progress.job) == ([], job)


def test_only_a_finished_job_begins_again(path: str) -> None:
    with opened(path) as progress:
        progress.acknowledge(A, 18)
        job = progress.job
    with opened(path, again=True) as progress:
        assert progress.job == job
        progress.acknowledge(A, 60)
        progress.acknowledge(B, 7)
    with opened(path, again=True) as progress:
        assert progress.job != job
        assert len(progress.left()) == 3


@given(st.integers(0, (1 << 63) - 1))
def test_lines_are_json_and_numbers_stay_within_sectors(tmp_path_factory: pytest.TempPathFactory, offset: int) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    with opened(str(path)) as progress:
        progress.acknowledge(B, offset)
    content = path.read_bytes()
    at = 0
    for line in content.splitlines(keepends=True):
        first = at + len('{"next":')
        assert first // 512 == (first + 19) // 512
        at += len(line)
    assert [json.loads(line)["next"] for line in content.splitlines()] == [0, 3, offset]


def test_a_second_process_is_kept_out(path: str) -> None:
    with opened(path), pytest.raises(ConfigError, match="used by another process"):
        opened(path)


@pytest.mark.parametrize("asked", [{"topic": ["payments"]}, {"broker": "other:10911"}])
def test_the_file_of_another_job_is_refused(path: str, asked: dict[str, object]) -> None:
    opened(path).__exit__()
    before = Path(path).read_bytes()
    with pytest.raises(ConfigError, match=f"of another job: {next(iter(asked))} was"):
        opened(path, **asked)
    assert Path(path).read_bytes() == before


def test_a_job_without_messages_is_refused_and_leaves_no_job(path: str) -> None:
    with pytest.raises(ConfigError, match="no messages found between start and end"):
        opened(path, [QueueRange(A, 3, 3)])
    with opened(path) as progress:
        assert len(progress.left()) == 3


def test_a_file_in_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        opened(str(tmp_path / "missing" / "state"))


@given(st.integers(0, 500), st.binary(max_size=20))
def test_a_damaged_file_is_refused(tmp_path_factory: pytest.TempPathFactory, at: int, data: bytes) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    opened(str(path)).__exit__()
    content = path.read_bytes()
    path.write_bytes(content[:at] + data)
    with suppress(FormatError, ConfigError), opened(str(path)) as progress:
        assert set(progress.queues) == {A, B}


def test_a_kill_while_a_file_is_made_leaves_none(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        opened(path)
    monkeypatch.undo()
    with opened(path) as progress:
        assert len(progress.left()) == 3
