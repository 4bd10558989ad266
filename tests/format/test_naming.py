import os
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format import naming
from support import fixtures

HOSTILE = ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "x" * 256, "ü" * 128, "\ud800"]


@given(st.integers(0, 2**63 - 1))
def test_segment_names_round_trip(base: int) -> None:
    name = naming.segment_name(base)
    assert len(name) == 20
    assert int(name) == base
    for wrong in (-1 - base, 2**63 + base):
        with pytest.raises(FormatError, match="no segment can begin"):
            naming.segment_name(wrong)


def test_queue_ids_and_index_names() -> None:
    ids = {"0": 0, "17": 17, "2147483647": 2**31 - 1} | dict.fromkeys(("2147483648", "01", "-1", "", "²"))
    assert {name: naming.parse_queue_id(name) for name in ids} == ids
    assert naming.index_name(datetime(2026, 11, 21, 2, 13, 46, 480999)) == "20261121021346480"  # noqa: DTZ001 - local
    names = ("20261121021346480", "1", "", "x", "20261121021346480.tmp", "99999999999999999999", "１")
    assert [naming.is_index_name(name) for name in names] == [True, True, *[False] * 5]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_neither_topics_nor_path_components(name: str) -> None:
    assert not naming.is_safe_path_component(name)
    assert naming.topic_problem(name) is not None


@given(st.text())
def test_a_safe_component_stays_in_its_directory(name: str) -> None:
    if naming.is_safe_path_component(name):
        assert Path(os.path.normpath(os.path.join("/a/b", name))).parent == Path("/a/b")
    if naming.topic_problem(name) is None:
        assert naming.is_safe_path_component(name)
        assert naming.is_readable_topic(name)


@pytest.mark.parametrize(
    "topic", ["T", "Order_Topic-1", "%RETRY%group", "%DLQ%group", "a|b", "x" * 127, "%RETRY%" + "g" * 248]
)
def test_topics_that_rocketmq_takes(topic: str) -> None:
    assert naming.topic_problem(topic) is None
    assert naming.is_readable_topic(topic)


@pytest.mark.conformance
def test_every_topic_of_a_real_store_is_readable() -> None:
    topics = {queue["topic"] for name in fixtures.names() for queue in fixtures.expected(name).queues}
    assert [topic for topic in topics if not naming.is_readable_topic(topic)] == []


SYSTEM = [
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    *("rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
    *("BenchmarkTest", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
    "CHECKPOINT_TOPIC",
]


def test_topics_of_groups_are_system_topics_but_not_topics_of_the_broker() -> None:
    of_groups = ["%RETRY%group", "%DLQ%group", "%RETRY%", "%DLQ%"]
    of_users = ["Orders", "RETRY%group", "schedule_topic_xxxx", "TBW1022", "REPLY_TOPIC"]
    names = [*SYSTEM, *of_groups, *of_users]
    assert [name for name in names if naming.is_system_topic(name)] == [*SYSTEM, *of_groups]
    assert [name for name in names if naming.is_broker_topic(name)] == SYSTEM


def test_more_topic_names_are_readable_than_writable() -> None:
    for name in ("Orders", "%LMQ%home|sensor+1|#", "Überweisungen", "a b", "x" * 255):
        assert naming.is_readable_topic(name)
    for name in ("a/b", "..", "", "line\nend", "\x1b[2J", os.fsdecode(b"\xff"), "x" * 256):
        assert not naming.is_readable_topic(name)
        assert naming.topic_problem(name) is not None
