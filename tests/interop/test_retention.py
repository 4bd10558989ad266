import json
import os
import shutil
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, QueueKey, RetentionSettings, Snapshot
from segmentlog.store.maintenance import Conditions, apply_retention, verify
from support import oracle, releases
from support.retention_states import CONFIG, HOUR_MS, NOW_MS, ask_rocketmq, differences, generate, listed, template
from support.scale import sample, scale
from support.writing import broker_config

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=1)]

STATES = {version: scale(4, 20, 100) for version in releases.RETENTION} | {releases.NEWEST: scale(6, 100, 300)}
FIRST_SEED = 10_000
"""Other states than the recorded ones."""


@pytest.fixture(params=sample([*releases.RETENTION], 3))  # the last one has the rules of the newest
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.scaled
@pytest.mark.timeout(1800)
def test_rocketmq_deletes_the_same_files_in_the_same_order(version: str) -> None:
    cases = [generate(version, FIRST_SEED + number) for number in range(STATES[version])]
    outcomes = ask_rocketmq(cases, version)
    assert len(outcomes) == len(cases)
    found = [
        f"seed {FIRST_SEED + number}: {difference}"
        for number, (case, rounds) in enumerate(zip(cases, outcomes, strict=True))
        for difference in differences(case, rounds, version, listed(case.store))
    ]
    assert found == []
    assert any(each.log for rounds in outcomes for each in rounds)


def aged(folder: Path, store: str) -> Path:
    """Copy a store of which all segments but the last three are expired."""
    path = folder / "store"
    shutil.copytree(template(store), path)
    segments = sorted((path / "commitlog").iterdir())
    for number, segment in enumerate(segments):
        hours = 80 if number < len(segments) - 3 else 1
        os.utime(segment, ns=(0, (NOW_MS - hours * HOUR_MS) * 1_000_000))
    return path


def bounds(path: Path) -> dict[QueueKey, tuple[int, int]]:
    snapshot = Snapshot.open(path)
    return {
        each.key: (each.min_offset, each.max_offset) for topic in snapshot.topics() for each in snapshot.queues(topic)
    }


def empty_as_4_says(found: dict[QueueKey, tuple[int, int]], version: str) -> dict[QueueKey, tuple[int, int]]:
    """4.9 does not correct the first offset of a queue without messages: it stays 0 after a start."""
    if releases.EMPTY_QUEUES.holds(version):
        return found
    return {key: (0, stop) if start == stop else (start, stop) for key, (start, stop) in found.items()}


@pytest.mark.parametrize("store", ["rows-900", "early-900"])
def test_rocketmq_finds_the_same_first_offsets_after_our_retention(tmp_path: Path, version: str, store: str) -> None:
    path = aged(tmp_path, store)
    settings = RetentionSettings(files_per_run=1000, log_pause_ms=0, queue_pause_ms=0)
    conditions = Conditions(now_ms=NOW_MS, hour=4, log_used=10, queues_used=10)
    done = apply_retention(path, settings, conditions)
    assert done.log_start > 20 * CONFIG.segment_bytes
    ours = bounds(path)
    assert all(start > 0 for start, _ in ours.values())
    assert (store == "early-900") == any(start == stop for start, stop in ours.values())
    lines = oracle.dump(path, broker_config(CONFIG), version)
    (found,) = [line for line in lines if line["type"] == "store"]
    assert found["minPhyOffset"] == done.log_start
    theirs = {
        QueueKey(line["topic"], line["queueId"]): (line["minOffset"], line["maxOffset"])
        for line in lines
        if line["type"] == "queue"
    }
    assert theirs == empty_as_4_says(ours, version)
    messages = sum(line["type"] == "message" for line in lines)
    assert messages == sum(stop - start for start, stop in ours.values())


@pytest.mark.parametrize("store", ["rows-900", "early-900"])
def test_we_find_the_same_first_offsets_after_rocketmqs_retention(tmp_path: Path, version: str, store: str) -> None:
    path = aged(tmp_path, store)
    shutil.rmtree(path / ".segmentlog")
    config = {**broker_config(CONFIG), "deleteCommitLogFilesInterval": 0, "deleteConsumeQueueFilesInterval": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ("--rounds=6", "--advance=10000", "--hour=4", f"--now={NOW_MS}", "--usage=10%", "--no-close")
    lines = oracle.retain(version, "--store", path, "--config", tmp_path / "config.json", *options)
    (after,) = [line for line in lines if line["type"] == "after"]
    assert after["minPhyOffset"] > 20 * CONFIG.segment_bytes
    theirs = {
        QueueKey(each["topic"], each["queueId"]): (each["minOffset"], each["maxOffset"])
        for each in after["consumequeue"]
    }
    found = bounds(path)
    if not releases.EMPTY_QUEUES.holds(version):  # the first offset of a queue that became empty stays where it was
        found = {
            key: (theirs[key][0], stop) if start == stop else (start, stop) for key, (start, stop) in found.items()
        }
    assert found == theirs
    with MessageStore.open(path, CONFIG) as opened:
        assert opened.end_offset == after["maxPhyOffset"]
        assert opened.recovered.corrected == 0
    assert verify(path).findings == ()
