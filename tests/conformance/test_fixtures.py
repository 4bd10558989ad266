"""The fixtures come out as RocketMQ left them: other tests build on it."""

import json
from pathlib import Path

import pytest

from support import fixtures

pytestmark = pytest.mark.conformance


def test_holes_stay_holes(tmp_path: Path) -> None:
    store = fixtures.unpack("default-sizes-4.9.1", tmp_path)
    files = [path for path in store.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 1 << 30
    assert sum(path.stat().st_blocks * 512 for path in files) < 8 << 20


def test_modification_times_are_kept_to_the_nanosecond(tmp_path: Path) -> None:
    store = fixtures.unpack("time-4.9.1", tmp_path)
    assert (store / "commitlog" / f"{0:020d}").stat().st_mtime_ns == 1795227267_935723750
    assert store.stat().st_mtime_ns == 1795227270_167723827


@pytest.mark.parametrize("name", fixtures.names())
def test_a_fixture_is_whole(name: str) -> None:
    expected = fixtures.expected(name)
    assert expected.store["rocketmq"] == fixtures.about(name)["rocketmq"]
    assert len(expected.messages) == sum(queue["messages"] for queue in expected.queues)
    parts = (expected.queues, expected.messages, expected.records, expected.segments)
    assert sum(map(len, parts)) + 2 == len(list(expected))
    asked = json.loads((fixtures.FOLDER / name / "queries.json").read_text())
    assert asked["config"] == fixtures.config(name)
    assert len(asked["queries"]) == len(fixtures.queries(name)) >= len(fixtures.queries(name, "messageByKey"))
