import json
import re
from pathlib import Path

import pytest

from segmentlog.query.metadata import METRICS, SCHEMAS, Metrics, queue_rows
from segmentlog.store import MessageStore, QueueKey, QueueRange, RetentionSettings, Snapshot
from segmentlog.store.groups import commit_offsets
from segmentlog.store.maintenance import health_of
from support import streams

Values = dict[tuple[str, str | None, str | None], float]


def values(metrics: Metrics) -> Values:
    return {(row["metric"], row["topic"], row["group"]): row["value"] for row in metrics.rows()}


def put(path: Path, topic: str, count: int) -> None:
    with MessageStore.open(path) as store:
        streams.put(store, count, topic, body=b"x" * 100)


def test_topics_and_groups_have_the_numbers_of_their_rows(tmp_path: Path) -> None:
    put(tmp_path, "orders", 10)
    put(tmp_path, "payments", 4)
    commit_offsets(tmp_path, "etl", {QueueKey("orders", 0): 1, QueueKey("orders", 1): 5})
    snapshot = Snapshot.open(tmp_path)
    rows = Metrics(snapshot).rows()
    assert all(list(row) == SCHEMAS["metrics"].names for row in rows)
    assert {row["metric"] for row in rows} == METRICS.keys() - {"replica_lag_bytes"}
    found = values(Metrics(snapshot))
    sizes = [row["bytes"] for row in queue_rows(snapshot, snapshot.queues("orders"), {"bytes"})]
    assert found["topic_messages", "orders", None] == 10
    assert found["topic_bytes", "orders", None] == sum(sizes)
    assert found["topic_end_offset", "payments", None] == 4
    assert found["group_lag_messages", "orders", "etl"] == 4
    assert found["group_lag_bytes", "orders", "etl"] == 4 * sum(sizes) / 10
    assert found["log_bytes", None, None] == found["log_end_offset", None, None] == snapshot.readable_stop()
    first = snapshot.message_at(0)
    assert first is not None
    assert found["oldest_store_timestamp_seconds", None, None] == first.store_timestamp.timestamp()


def test_messages_that_were_counted_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "orders", 10)
    metrics = Metrics(Snapshot.open(tmp_path))
    before = values(metrics)
    asked: list[QueueRange] = []
    original = Snapshot.stored_bytes

    def counted(self: Snapshot, wanted: QueueRange) -> int:
        asked.append(wanted)
        return original(self, wanted)

    monkeypatch.setattr(Snapshot, "stored_bytes", counted)
    put(tmp_path, "orders", 2)
    after = values(metrics)
    assert asked == [QueueRange(QueueKey("orders", number), 5, 6) for number in (0, 1)]
    one = before["topic_bytes", "orders", None] / 10
    assert after["topic_bytes", "orders", None] == 12 * one
    assert after["topic_messages", "orders", None] == 12


def test_head_room_ends_at_the_limit_of_retention(tmp_path: Path) -> None:
    put(tmp_path, "orders", 1)
    (disk,) = health_of(Snapshot.open(tmp_path)).disks
    for percent in (10, 95):
        found = values(Metrics(Snapshot.open(tmp_path), RetentionSettings(disk_max_used_percent=percent)))
        used = found["disk_bytes", None, None] - found["disk_free_bytes", None, None]
        room = found["retention_head_room_bytes", None, None]
        assert room == pytest.approx(disk.total * percent / 100 - used)


def test_an_empty_store_has_no_times(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path):
        pass
    found = values(Metrics(Snapshot.open(tmp_path)))
    assert found["log_bytes", None, None] == 0
    assert not {"oldest_store_timestamp_seconds", "unsynced_seconds"} & {name for name, _, _ in found}


def test_the_dashboard_and_its_page_name_metrics_that_exist() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    for page, least in (("monitoring/grafana.json", 10), ("monitoring.md", len(METRICS))):
        text = (docs / page).read_text()
        named = set(re.findall(r"segmentlog_(\w+)" if page.endswith("json") else r"`(\w+)`", text))
        assert len(named & METRICS.keys()) >= least
        if page.endswith("json"):
            assert named <= METRICS.keys()
            json.loads(text)
