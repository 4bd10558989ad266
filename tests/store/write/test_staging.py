import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import (
    BatchId,
    ConfigError,
    FormatError,
    MessageStore,
    Outgoing,
    QueueKey,
    StoreConfig,
    UnsafeFileError,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.sink import Staged, Staging, discard_jobs, discard_staged, sweep_staging
from segmentlog.store.write.staging import survey_staged, take_staged
from support.batches import batch_of
from support.written_stores import SMALL

FS = LocalWritableFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> str:
    store = tmp_path / "store"
    MessageStore.open(store, SMALL).close()
    return str(store)


def messages(count: int, body: int = 10) -> list[Outgoing]:
    return [Outgoing(topic="Orders", body=bytes(body), queue_id=row % 3, uniq_key=f"u{row}") for row in range(count)]


def stage(path: str, rows: int = 20, *, job: str = "job", attempt: str = "a", config: StoreConfig = SMALL) -> Staged:
    with Staging.open(path, job, 0, attempt, config) as staging:
        staging.add(batch_of(messages(rows // 2)))
        staging.add(batch_of(messages(rows - rows // 2)))
        return staging.finish()


def files(path: str) -> list[str]:
    return sorted(os.listdir(StorePaths(path).staging))


def test_the_staged_file_reports_its_name_rows_and_bytes(path: str) -> None:
    staged = stage(path)
    assert staged.name == "job.0.a"
    assert staged.rows == 20
    assert os.path.getsize(os.path.join(StorePaths(path).staging, staged.name)) == staged.file_bytes
    sizes = np.concatenate(list(survey_staged(FS, path, staged)))
    assert sizes.size == 20
    assert int(sizes.sum()) == staged.record_bytes
    assert pickle.loads(pickle.dumps(staged)) == staged


def test_chunks_are_read_back_as_they_were_encoded(path: str) -> None:
    staged = stage(path)
    taken = list(take_staged(FS, path, staged))
    chunks = [each.rows for each in taken]
    assert [chunk.records.sizes.size for chunk in chunks] == [10, 10]
    assert chunks[0].queues.as_keys() == [QueueKey("Orders", queue) for queue in range(3)]
    assert chunks[0].queue_of.tolist() == [row % 3 for row in range(10)]
    assert all(chunk.counts.all() for chunk in chunks)
    joined = [chunk.records.join() for chunk in chunks]
    assert sum(data.size for data in joined) == staged.record_bytes
    joined[0][:] = 0  # they belong to the caller
    assert [each.release is None for each in taken] == [True, False]  # both are small, and released together
    taken[1].release()
    file = Path(StorePaths(path).staging) / staged.name
    assert file.stat().st_size == staged.file_bytes
    assert not file.read_bytes().strip(b"\0")  # nothing of it is left behind


def test_attempts_do_not_meet(path: str) -> None:
    stage(path, attempt="one")
    stage(path, attempt="two")
    with pytest.raises(FileExistsError):
        stage(path, attempt="two")
    assert files(path) == ["job.0.one", "job.0.two"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 101, "a.b", "j\u00f6b"])
def test_invalid_names_are_refused(path: str, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name staged rows"):
        Staging.open(path, name, 0, "a", SMALL)
    with pytest.raises(ConfigError, match="cannot name staged rows"):
        Staging.open(path, "job", 0, name, SMALL)


def lay_all(path: str, staged: Staged) -> None:
    """Read all of a staged file, as a commit does."""
    for each in take_staged(FS, path, staged):
        each.rows.records.lay()


def _flip(data: bytearray) -> None:
    data[len(data) // 2] ^= 1


ALTERED: dict[str, Callable[[bytearray], object]] = {
    "a bit": _flip,
    "cut": lambda data: data.__delitem__(slice(len(data) - 1, None)),
    "longer": lambda data: data.extend(b"x"),
    "empty": lambda data: data.clear(),
    "another header": lambda data: data.__setitem__(slice(0, 4), b"none"),
    "many rows": lambda data: data.__setitem__(slice(4, 8), b"\x7f\xff\xff\xff"),
}


@pytest.mark.parametrize("how", ALTERED)
def test_altered_files_are_found(path: str, how: str) -> None:
    staged = stage(path)
    file = Path(StorePaths(path).staging) / staged.name
    data = bytearray(file.read_bytes())
    ALTERED[how](data)
    file.write_bytes(data)
    with pytest.raises(FormatError, match="staged rows differ from the rows that their task wrote") as error:
        lay_all(path, staged) if how == "a bit" else list(survey_staged(FS, path, staged))
    assert error.value.path == str(file)


def test_a_file_of_another_attempt_is_not_taken_for_it(path: str) -> None:
    staged, other = stage(path), stage(path, 22, attempt="b")
    with pytest.raises(FormatError, match="differ from the rows that their task wrote"):
        list(survey_staged(FS, path, replace(staged, name=other.name)))
    with pytest.raises(FormatError, match="the file is missing"):
        list(survey_staged(FS, path, replace(staged, name="job.0.c")))


def test_staged_files_can_be_discarded(path: str) -> None:
    staged = [stage(path, attempt="a"), stage(path, attempt="b")]
    discard_staged(path, staged[:1])
    assert files(path) == ["job.0.b"]
    discard_staged(path, staged)  # the other one again: nothing happens
    assert files(path) == []


def test_only_jobs_that_are_idle_for_long_are_swept(path: str) -> None:
    stage(path, job="old", attempt="a")
    stage(path, job="alive", attempt="early")
    stage(path, job="alive", attempt="late")
    long_ago = time.time() - 100_000
    for name in ("old.0.a", "alive.0.early"):
        os.utime(os.path.join(StorePaths(path).staging, name), (long_ago, long_ago))
    assert sweep_staging(path) == 1
    assert files(path) == ["alive.0.early", "alive.0.late"]
    assert sweep_staging(path, idle_s=0) == 2
    assert sweep_staging(Path(path) / "nowhere") == 0


# Links, and files of other owners


def old(file: Path) -> Path:
    file.write_bytes(b"not ours")
    os.utime(file, (1, 1))
    return file


SWEEPS: dict[str, Callable[[str], int]] = {
    "idle ones": sweep_staging,
    "of a job": lambda path: discard_jobs(path, "job"),
    "all": lambda path: discard_jobs(path, ""),
}


@pytest.mark.parametrize("linked", ["staging", "ours"])
@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_does_not_follow_a_link(path: str, tmp_path: Path, sweep: str, linked: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "staging").mkdir(parents=True)
    kept = [old(elsewhere / "staging" / name) for name in ("job.0.a", "letter.txt")]
    ours = Path(path) / ".segmentlog"
    if linked == "staging":
        (ours / "staging").symlink_to(elsewhere / "staging")
    else:
        ours.rename(tmp_path / "moved")
        ours.symlink_to(elsewhere)
    with pytest.raises(UnsafeFileError, match="symbolic link"):
        SWEEPS[sweep](path)
    assert all(file.exists() for file in kept)


def test_a_sweep_takes_plain_files_of_our_names_alone(path: str, tmp_path: Path) -> None:
    stage(path)
    staging = Path(StorePaths(path).staging)
    target = old(tmp_path / "target")
    (staging / "job.1.link").symlink_to(target)
    (staging / "job.2.dir").mkdir()
    os.mkfifo(staging / "job.3.fifo")
    others = [
        old(staging / name)
        for name in ("notes.txt", "job.0", "job.x.a", "job.0.a.b", ".0.a", "j\u00f6b.0.a", "a b.0.a")
    ]
    os.utime(staging / "job.0.a", (1, 1))
    assert sweep_staging(path) == 1
    stage(path)
    assert discard_jobs(path, "job") == 1
    assert discard_jobs(path, "") == 0
    assert all(file.exists() for file in others)
    assert target.exists()
    assert sorted(os.listdir(staging)) == sorted(
        [*(file.name for file in others), "job.1.link", "job.2.dir", "job.3.fifo"]
    )


@pytest.mark.parametrize("name", ["../../../victim", "/nowhere/at/all", "job.0", "job.0.a/../../x", ""])
def test_a_name_that_leads_elsewhere_is_refused(path: str, tmp_path: Path, name: str) -> None:
    victim = old(tmp_path / "victim")
    staged = replace(stage(path), name=name)
    for act in (
        lambda: list(survey_staged(FS, path, staged)),
        lambda: list(take_staged(FS, path, staged)),
        lambda: discard_staged(path, [staged]),
    ):
        with pytest.raises(FormatError, match="is not a name of staged rows"):
            act()
    assert victim.exists()


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_a_file_that_is_exchanged_after_the_survey_is_not_taken(path: str, chunks: int) -> None:
    staged = stage(path)  # two chunks; another file of two has the same length
    list(survey_staged(FS, path, staged))
    rows = [replace(each, body=b"exchanged!") for each in [*messages(10), *messages(10)]]
    with Staging.open(path, "job", 0, "other", SMALL) as staging:
        for start in range(0, 20, 20 // chunks):
            staging.add(batch_of(rows[start : start + 20 // chunks]))
        other = staging.finish()
    root = Path(StorePaths(path).staging)
    (root / other.name).rename(root / staged.name)
    with pytest.raises(FormatError, match="differ from the rows that their task wrote"):
        lay_all(path, staged)


# Permissions


@pytest.mark.parametrize("store_mode", [0o700, 0o750, 0o755, 0o777])
def test_nothing_of_a_store_is_wider_than_its_directory(tmp_path: Path, store_mode: int) -> None:
    store = tmp_path / "store"
    before = os.umask(0)
    try:
        store.mkdir(store_mode)
        with MessageStore.open(store, SMALL) as opened:
            opened.append_batch(batch_of(messages(200, 300)))
            staged = stage(str(store))
            found = {each: each.stat().st_mode & 0o777 for each in store.rglob("*")}
            opened.commit_batch(BatchId("q", 0), [staged])
        found |= {each: each.stat().st_mode & 0o777 for each in store.rglob("*")}
    finally:
        os.umask(before)
    assert any(each.name == staged.name for each in found)
    assert any(each.name == "ledger" for each in found)
    for each, mode in found.items():
        assert mode & ~store_mode == 0, f"{each} has mode {mode:o}"
        assert mode & 0o022 == 0 or each.is_dir(), f"others may write {each}, which has mode {mode:o}"


def test_a_store_that_is_made_in_a_shared_directory_is_its_owner_s(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    before = os.umask(0)
    try:
        MessageStore.open(tmp_path / "store", SMALL).close()
    finally:
        os.umask(before)
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o755
