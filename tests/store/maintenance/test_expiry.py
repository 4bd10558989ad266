import os
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import (
    ConfigError,
    MessageStore,
    NotAStoreError,
    QueueKey,
    RetentionSettings,
    Snapshot,
    StoreInUseError,
)
from segmentlog.store.maintenance import Conditions, Retained, apply_retention, plan_retention, verify
from segmentlog.store.maintenance.expiry import BrokerPaths, configured_paths
from support.small_store import CONFIG, write_small_store

HOUR_MS = 3_600_000
NOW = 1_763_700_000_000
SETTINGS = RetentionSettings(file_reserved_hours=72, files_per_run=2, log_pause_ms=0, queue_pause_ms=0)
CALM = Conditions(now_ms=NOW, hour=4, log_used=10, queues_used=10)


FULL = Conditions(now_ms=NOW, hour=5, log_used=91, queues_used=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = write_small_store(tmp_path / "store")
    segments = sorted((made / "commitlog").iterdir())
    assert len(segments) >= 3
    for number, segment in enumerate(segments):
        age = 100 - 30 * number
        os.utime(segment, ns=(0, (NOW - age * HOUR_MS) * 1_000_000))
    return made


def content(path: Path) -> dict[str, tuple[int, int]]:
    files = [(file, file.stat()) for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): (found.st_size, found.st_mtime_ns) for file, found in files}


def deleted(found: Retained) -> list[list[str]]:
    return [[each.file for each in run.expired] for run in found.runs]


def test_a_plan_changes_no_file_and_apply_deletes_exactly_the_planned_files(path: Path) -> None:
    conditions = replace(CALM, rounds=3)
    before = content(path)
    planned = plan_retention(path, SETTINGS, conditions)
    assert content(path) == before
    applied = apply_retention(path, SETTINGS, conditions)
    assert applied == planned
    gone = {file for run in deleted(planned) for file in run}
    assert before.keys() - content(path).keys() == gone
    assert gone
    snapshot = Snapshot.open(path)
    assert [bounds for topic in snapshot.topics() for bounds in snapshot.queues(topic)] == list(planned.queues)
    with MessageStore.open(path, CONFIG) as store:
        assert store.recovered.was_clean
        assert store.recovered.corrected == 0
    assert verify(path).findings == ()


def test_rounds_go_on_where_the_one_before_ended_and_a_manual_trigger_starts_one_at_any_hour(path: Path) -> None:
    found = plan_retention(path, RetentionSettings(files_per_run=1), replace(FULL, rounds=3))
    starts = [run.plan.log_start for run in found.runs]
    assert starts == [CONFIG.segment_bytes * number for number in (1, 2, 3)][: len(starts)]
    assert [run.expired[0].reason for run in found.runs[:2]] == ["expired (space)", "forced (space)"]
    assert found.disk_full
    assert [run.moment.ms for run in found.runs] == [NOW, NOW + 10_000, NOW + 20_000]
    quiet = replace(CALM, hour=5)
    assert deleted(plan_retention(path, SETTINGS, quiet)) == [[]]
    (run,) = plan_retention(path, SETTINGS, replace(quiet, manual=True)).runs
    assert run.plan.manual
    assert run.expired[0].reason == "expired (manual)"


def test_the_real_disk_and_clock_are_asked_without_suppositions(path: Path) -> None:
    (run,) = plan_retention(path, RetentionSettings(delete_when="", disk_max_used_percent=95)).runs
    assert "is not an hour" in run.plan.failure
    assert abs(run.moment.ms - NOW) > HOUR_MS
    shared = plan_retention(path, RetentionSettings(brokers_per_disk=2, delete_when="4"), Conditions(now_ms=NOW))
    assert shared.runs[0].plan.space_short is not None


def test_a_queue_without_messages_keeps_its_offsets(path: Path) -> None:
    before = {bounds.key: bounds for topic in ("orders", "refunds") for bounds in Snapshot.open(path).queues(topic)}
    found = apply_retention(path, SETTINGS, replace(FULL, rounds=20))
    for bounds in found.queues:
        assert bounds.max_offset == before[bounds.key].max_offset
        assert bounds.min_offset >= before[bounds.key].min_offset
    assert len(list((path / "commitlog").iterdir())) == 1
    for key in before:
        assert len(list((path / "consumequeue" / key.topic / str(key.queue_id)).iterdir())) >= 1
    assert Snapshot.open(path).bounds(QueueKey("orders", 0)).max_offset == before[QueueKey("orders", 0)].max_offset


def test_a_store_that_is_open_keeps_its_files(path: Path) -> None:
    with MessageStore.open(path, CONFIG):
        before = content(path)
        with pytest.raises(StoreInUseError):
            apply_retention(path, SETTINGS, CALM)
        assert content(path) == before
        assert deleted(plan_retention(path, SETTINGS, CALM))[0]
    apply_retention(path, SETTINGS, CALM)
    with MessageStore.open(path, CONFIG):  # the lock was released
        pass


def test_a_directory_without_a_store_and_impossible_conditions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for act in (plan_retention, apply_retention):
        with pytest.raises(NotAStoreError):
            act(tmp_path / "other", SETTINGS)
    for named, value in (("hour", 24), ("rounds", 0), ("log_used", 101), ("queues_used", -1)):
        with pytest.raises(ConfigError, match=f"{named} is "):
            Conditions(**{named: value})  # type: ignore[arg-type]


# CommitLog directories of a broker's configuration


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("store/commitlog", "store/log", "disk2", "disk3"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "store"


def test_commit_log_directories_of_a_configuration(store: Path, tmp_path: Path) -> None:
    for conf in ("", "fileReservedTime=3", f"storePathRootDir = {store}/", f"storePathCommitLog={store}/commitlog"):
        assert configured_paths(conf, store) == BrokerPaths((), ())
    conf = (
        f"storePathRootDir={store}\nstorePathCommitLog={store}/log, {tmp_path}/disk2,\n"
        f"readOnlyCommitLogStorePaths={tmp_path}/disk3,{tmp_path}/disk2\n"
    )
    assert configured_paths(conf, store).commit_logs == (f"{store}/log", f"{tmp_path}/disk2", f"{tmp_path}/disk3")
    found = configured_paths("storePathRootDir=/data/store\nstorePathCommitLog=/data/store/log", store)
    assert found.commit_logs == (f"{store}/log",), "a copy of a store has its own directories"
    assert found.notes == (f"storePathRootDir of the configuration is /data/store, and not {store}",)
    for name in ("storePathCommitLog", "readOnlyCommitLogStorePaths"):
        with pytest.raises(ConfigError, match=f"{name} of the configuration names a directory that does not exist"):
            configured_paths(f"{name}=/no/such/directory", store)
    (store / "commitlog" / f"{0:020d}").touch()
    found = configured_paths(f"storePathCommitLog={tmp_path}/disk2", store)
    assert found.commit_logs == (f"{tmp_path}/disk2",)
    problem = "has segments, and storePathCommitLog of the configuration names other directories"
    assert found.notes == (f"{store}/commitlog {problem}",)
    assert configured_paths(f"storePathCommitLog={tmp_path}/disk2,{store}/commitlog", store).notes == ()
