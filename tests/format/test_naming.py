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


@pytest.mark.parametrize("base", [-1, 2**63])
def test_offsets_that_no_segment_can_have_are_refused(base: int) -> None:
    with pytest.raises(FormatError, match="no segment can begin"):
        naming.segment_name(base)


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [
        ("0", 0),
        ("17", 17),
        ("2147483647", 2**31 - 1),
        ("2147483648", None),
        ("01", None),
        ("-1", None),
        ("", None),
        ("²", None),
    ],
)
def test_queue_ids(name: str, queue_id: int | None) -> None:
    assert naming.parse_queue_id(name) == queue_id


def test_index_names() -> None:
    assert naming.index_name(datetime(2026, 11, 21, 2, 13, 46, 480999)) == "20261121021346480"  # noqa: DTZ001 - local
    assert naming.is_index_name("20261121021346480")
    assert naming.is_index_name("1")
    for name in ("", "x", "20261121021346480.tmp", "99999999999999999999", "１"):
        assert not naming.is_index_name(name)


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


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("", "needs a name"),
        ("a b", "holds ' '"),
        ("größe", "holds 'ö'"),
        ("T\n", "holds '\\n'"),
        ("x" * 128, "has 128 characters, at most 127"),
        ("%RETRY%" + "g" * 249, "has 256 characters, at most 255"),
    ],
)
def test_why_a_topic_is_refused(topic: str, says: str) -> None:
    problem = naming.topic_problem(topic)
    assert problem is not None
    assert says in problem


@pytest.mark.conformance
@pytest.mark.parametrize("name", fixtures.names())
def test_every_topic_of_a_real_store_is_readable(name: str) -> None:
    assert all(naming.is_readable_topic(queue["topic"]) for queue in fixtures.expected(name).queues)


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "TBW102",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "BenchmarkTest",
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "CHECKPOINT_TOPIC",
    ],
)
def test_system_topics(topic: str) -> None:
    assert naming.is_system_topic(topic)
    assert naming.is_broker_topic(topic)


@pytest.mark.parametrize("topic", ["%RETRY%group", "%DLQ%group", "%RETRY%", "%DLQ%"])
def test_topics_of_groups_are_system_topics_that_the_topic_table_lists(topic: str) -> None:
    assert naming.is_system_topic(topic)
    assert not naming.is_broker_topic(topic)


@pytest.mark.parametrize("topic", ["Orders", "RETRY%group", "schedule_topic_xxxx", "TBW1022", "REPLY_TOPIC"])
def test_users_topics(topic: str) -> None:
    assert not naming.is_system_topic(topic)
    assert not naming.is_broker_topic(topic)


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("Orders", True),
        ("%LMQ%home|sensor+1|#", True),
        ("Überweisungen", True),
        ("a b", True),
        ("a/b", False),
        ("..", False),
        ("", False),
        ("line\nend", False),
        ("\x1b[2J", False),
        (os.fsdecode(b"\xff"), False),
        ("x" * 255, True),
        ("x" * 256, False),
    ],
)
def test_more_topic_names_are_readable_than_writable(name: str, *, readable: bool) -> None:
    assert naming.is_readable_topic(name) == readable
    assert readable or naming.topic_problem(name) is not None
