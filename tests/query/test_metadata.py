from pathlib import Path

import pytest

from segmentlog.query.metadata import group_rows, lag_rows
from segmentlog.store import Snapshot
from segmentlog.store.groups import list_groups
from support import fixtures


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "ends"), [("lite-groups-5.1.0", (28, 23)), ("lite-groups-5.5.0", (16, 8))])
def test_light_queues_have_positions_and_lag(name: str, ends: tuple[int, int], tmp_path: Path) -> None:
    """%LMQ%a is a light group, which reads the queue of its name; etl reads a light queue beside others."""
    snapshot = Snapshot.open(fixtures.unpack(name, tmp_path))
    groups = {each.group: each for each in list_groups(snapshot.path)}
    positions = {
        (row["group"], row["topic"]): row["position"] for each in groups.values() for row in group_rows(snapshot, each)
    }
    assert (positions["%LMQ%a", "%LMQ%a"], positions["etl", "%LMQ%b"]) == (5, 2)
    for group, topic, position, end in (("%LMQ%a", "%LMQ%a", 5, ends[0]), ("etl", "%LMQ%b", 2, ends[1])):
        (row,) = (row for row in lag_rows(snapshot, groups[group]) if row["topic"] == topic)
        assert (row["position"], row["maxOffset"], row["messages"], row["lost"]) == (position, end, end - position, 0)
        assert row["bytes"] > 0
