import os
import time
from pathlib import Path

import pytest

from segmentlog.jobs.lake.attempts import Attempt, Attempts
from segmentlog.jobs.lake.parquet_files import DataFile
from segmentlog.store import ConfigError


def file_of(attempt: Attempt, name: str) -> DataFile:
    path = Path(attempt.directory.removeprefix("file://")) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    return DataFile(name, 1, 1, (), "{}")


def files(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


def none() -> set[str]:
    return set()


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(f"file://{tmp_path}", f"file://{tmp_path}/data", "job")


def test_a_finished_attempt_has_the_committed_files_only(attempts: Attempts, tmp_path: Path) -> None:
    attempt = attempts.start()
    kept = [file_of(attempt, "queueId=1/a"), file_of(attempt, "b")]
    file_of(attempt, "queueId=1/c")
    attempt.list_files(kept)
    attempt.finish(kept)
    assert files(tmp_path) == [f"data/segmentlog/{attempt.id}/b", f"data/segmentlog/{attempt.id}/queueId=1/a"]


def test_a_live_attempt_stays(attempts: Attempts, tmp_path: Path) -> None:
    attempt = attempts.start()
    file_of(attempt, "a")
    assert attempts.clean(none) == 0
    assert len(files(tmp_path)) == 2


def test_a_dead_attempt_goes_if_it_was_not_committed(attempts: Attempts, tmp_path: Path) -> None:
    attempt = attempts.start()
    attempt.list_files([file_of(attempt, "a")])
    attempt.release()
    assert attempts.clean(none) == 1
    assert files(tmp_path) == []
    assert not Path(attempt.directory.removeprefix("file://")).exists()


@pytest.mark.parametrize("lists", [True, False])
def test_a_dead_attempt_that_was_committed_keeps_its_files(attempts: Attempts, tmp_path: Path, lists: bool) -> None:
    attempt = attempts.start()
    kept = [file_of(attempt, "a")]
    file_of(attempt, "b")
    if lists:
        attempt.list_files(kept)
    attempt.release()
    assert attempts.clean(lambda: {attempt.id}) == 1
    names = ["a"] if lists else ["a", "b"]  # a power cut may lose the list
    assert files(tmp_path) == [f"data/segmentlog/{attempt.id}/{each}" for each in names]
    assert attempts.clean(none) == 0


def test_the_table_is_asked_after_the_lock_is_taken(attempts: Attempts) -> None:
    attempt = attempts.start()
    kept = [file_of(attempt, "a")]
    attempt.list_files(kept)
    asked: list[bool] = []

    def committed() -> set[str]:
        asked.append(True)
        return {attempt.id}

    attempts.clean(committed)
    assert asked == []
    attempt.release()
    attempts.clean(committed)
    assert asked == [True]


def test_a_commit_that_may_still_arrive_is_waited_for(attempts: Attempts, tmp_path: Path) -> None:
    attempt = attempts.start()
    file_of(attempt, "a")
    attempt.release()
    assert attempts.clean(none, settled_s=600) == 0
    (lease,) = (tmp_path / "_segmentlog" / "attempts" / "job").iterdir()
    os.utime(lease, (time.time() - 601, time.time() - 601))
    assert attempts.clean(none, settled_s=600) == 1


def test_other_jobs_are_left_alone(attempts: Attempts, tmp_path: Path) -> None:
    attempt = attempts.start()
    attempt.release()
    assert Attempts(f"file://{tmp_path}", f"file://{tmp_path}/data", "other").clean(none) == 0


def test_a_location_of_an_unknown_file_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="location what://ever cannot be opened"):
        Attempts("what://ever", "what://ever/data", "job")
