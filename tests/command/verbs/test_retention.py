import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import RetentionSettings, RocketMQRelease
from segmentlog.store.maintenance import Conditions, Retained, plan_retention
from support.commands import run_command
from support.small_store import CONFIG, write_small_store

HOUR_MS = 3_600_000
NOW = 1_763_700_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = write_small_store(tmp_path / "store")
    for number, segment in enumerate(sorted((path / "commitlog").iterdir())):
        os.utime(segment, ns=(0, (NOW - (100 - 30 * number) * HOUR_MS) * 1_000_000))
    return path


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(
        "brokerName=broker-a\n# hours\nfileReservedTime = 24\ndeleteWhen=05\n"
        "deleteCommitLogFilesInterval=0\ndeleteConsumeQueueFilesInterval=0\n"
    )
    return path


def ran(*words: object) -> tuple[int, Any]:
    """Exit code, and the report or the error."""
    found = run_command("retention", *words, "--json")
    return found.code, json.loads(found.out) if found.out else found.error


def text(*words: object) -> str:
    """The report of a run without findings, as text."""
    found = run_command("retention", *words)
    assert found.code == 0
    return found.text


def test_plan_and_apply_report_the_same(store: Path, conf: Path) -> None:
    options = ("--config", conf, "--now", NOW, "--hour", 5, "--disk-usage", "10,20%", "--rounds", 2)
    code, plan = ran("plan", store, *options)
    assert code == 0
    assert (store / "commitlog" / f"{0:020d}").exists()
    code, applied = ran("apply", store, *options)
    assert code == 0
    assert {**applied, "action": "plan"} == plan
    for each in plan["runs"][0]["deleted"]:
        assert not (store / each["file"]).exists()
    first, second = plan["runs"]
    assert [each["file"] for each in first["deleted"]][:3] == [
        f"commitlog/{number * CONFIG.segment_bytes:020d}" for number in range(3)
    ]
    assert first["deleted"][0]["reason"] == "expired (time)"
    assert (first["now"], first["hour"], second["now"]) == (NOW, 5, NOW + 10_000)
    assert (first["timeUp"], first["spaceShort"], first["manual"], first["forced"]) == (True, False, False, False)
    assert plan["minPhysicalOffset"] == 3 * CONFIG.segment_bytes
    assert (plan["diskFull"], plan["failures"]) == (False, 0)
    assert {(each["topic"], each["queueId"]) for each in plan["queues"]} == {
        (topic, queue) for topic in ("orders", "refunds") for queue in (0, 1)
    }
    assert all(0 < each["minOffset"] < each["maxOffset"] for each in plan["queues"])


def test_the_table_names_file_time_and_reason(store: Path, conf: Path) -> None:
    lines = text("plan", store, "--config", conf, "--now", NOW, "--hour", 6, "--disk-usage", 95).splitlines()
    assert lines[0].split() == ["run", "file", "bytes", "modified", "reason"]
    assert lines[1].split() == ["1", f"commitlog/{0:020d}", "16384", "2025-11-17T00:40:00Z", "expired", "(space)"]
    assert lines[-1].endswith("puts are refused")
    assert " to delete; the log starts at " in lines[-1]


def test_flags_become_settings_and_conditions(store: Path, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decisions of these settings: tests/store/retention."""
    asked: list[Any] = []

    def plan(path: str, *rest: Any, **more: Any) -> Retained:
        asked.extend(rest)
        return plan_retention(path, *rest, **more)

    monkeypatch.setattr("segmentlog.store.maintenance.plan_retention", plan)
    words = f"--now {NOW} --hour 6 --disk-usage 10,20% --manual --rounds 2 --release 4.9 --max-bytes 70000 --protect g"
    words += " --min-age orders=2d --min-age refunds=71h --hard-limit-percent 79"
    assert ran("plan", store, "--config", conf, *words.split())[0] == 0
    settings, conditions = asked
    assert settings == replace(
        RetentionSettings.from_conf(conf.read_text(), RocketMQRelease.V4_9),
        log_bytes_max=70_000,
        protected_groups=("g",),
        min_age_ms={"orders": 48 * HOUR_MS, "refunds": 71 * HOUR_MS},
        hard_limit_percent=79,
    )
    assert conditions == Conditions(now_ms=NOW, hour=6, log_used=10, queues_used=20, manual=True, rounds=2)


@pytest.mark.parametrize("action", ["plan", "apply"])
def test_a_misspelt_topic_does_not_lose_its_protection(store: Path, conf: Path, action: str) -> None:
    found = run_command("retention", action, store, "--config", conf, "--hour", 5, "--min-age", "order=9999d")
    assert found.code == 2
    assert "--min-age: there is no topic `order`" in found.err
    assert "Did you mean `orders`?" in found.err
    assert (store / "commitlog" / f"{0:020d}").exists()


def test_a_wrong_hour_is_a_finding(store: Path, conf: Path) -> None:
    conf.write_text("deleteWhen= 04;4h\n")
    code, plan = ran("plan", store, "--config", conf, "--now", NOW, "--hour", 6)
    assert code == 1
    assert "'4h' in it is not an hour" in plan["runs"][0]["problem"]
    found = run_command("retention", "plan", store, "--config", conf, "--now", NOW, "--hour", 6)
    assert (found.code, "CommitLog skipped" in found.text) == (1, True)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("fileReservedTime=many", "SEGMENTLOG_BAD_OPTION"),
        ("a=\\u12", "SEGMENTLOG_BAD_FORMAT"),
        (None, "SEGMENTLOG_BAD_OPTION"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_an_error(
    store: Path, conf: Path, content: str | None, code: str
) -> None:
    if content is None:
        conf.unlink()
    else:
        conf.write_text(content)
    found, error = ran("plan", store, "--config", conf)
    assert (found, error["code"]) == (2, code)


def test_files_are_archived_as_the_plan_reports(store: Path, conf: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    options = ("--config", conf, "--now", NOW, "--hour", 5, "--disk-usage", "10", "--archive", archive)
    _, plan = ran("plan", store, *options)
    files = [each["file"] for each in plan["runs"][0]["deleted"]]
    assert len(files) > 3
    assert [each["archive"] for each in plan["runs"][0]["deleted"]] == [f"{archive}/{file}" for file in files]
    assert plan["archived"] == 0
    assert not archive.exists()
    note = f"each file is copied before it is deleted, the first to {archive}/{files[0]}"
    assert note in text("plan", store, *options)
    contents = {file: (store / file).read_bytes() for file in files}
    _, applied = ran("apply", store, *options)
    assert (applied["archived"], applied["failures"]) == (len(files), 0)
    assert {file: (archive / file).read_bytes() for file in files} == contents
    assert not any((store / file).exists() for file in files)


def test_the_configuration_says_where_segments_are(store: Path, conf: Path, tmp_path: Path) -> None:
    options = ("--config", conf, "--now", NOW, "--hour", 5, "--disk-usage", "10")
    _, before = ran("plan", store, *options)
    assert before["notes"] == []
    (store / "commitlog").rename(tmp_path / "disk2")
    with conf.open("a") as file:
        file.write(f"storePathRootDir=/data/store\nstorePathCommitLog={tmp_path}/disk2\n")
    _, after = ran("plan", store, *options)
    note = f"storePathRootDir of the configuration is /data/store, and not {store}"
    assert after == before | {"notes": [note]}
    assert text("plan", store, *options).startswith(note)
    (tmp_path / "disk2").rename(tmp_path / "disk3")
    _, named = ran("plan", store, *options, "--commit-log", tmp_path / "disk3")
    assert named == before
    code, out = ran("plan", store, *options)
    assert (code, out["where"]["path"]) == (2, f"{tmp_path}/disk2")
