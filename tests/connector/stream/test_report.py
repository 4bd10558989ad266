import json

from segmentlog.connector.stream.offsets import StoreOffset, StreamOffset, TopicOffset
from segmentlog.connector.stream.report import progress_report


def offset(**topics: dict[int, int]) -> StreamOffset:
    ends = {name: TopicOffset(queues=queues) for name, queues in topics.items()}
    return StreamOffset({"b": StoreOffset(topics=ends)})


def test_waiting_messages_are_counted_by_topic_and_in_total() -> None:
    report = progress_report(offset(T={0: 10, 1: 4}, U={0: 7}), offset(T={0: 3, 1: 4}, U={0: 7}), {"b": "/data/b"})
    assert report == {
        "behind": 7,
        "stores": {
            "b": {
                "path": "/data/b",
                "topics": {"T": {"behind": 7, "queues": {"0": 10, "1": 4}}, "U": {"behind": 0, "queues": {"0": 7}}},
            }
        },
        "version": 1,
    }


def test_a_queue_without_a_position_is_unknown_and_not_zero() -> None:
    report = progress_report(offset(T={0: 10, 1: 4}, U={0: 7}), offset(T={0: 3}, U={0: 7}), {"b": "/data/b"})
    assert report["behind"] is None
    assert {name: each["behind"] for name, each in report["stores"]["b"]["topics"].items()} == {"T": None, "U": 0}
    other = progress_report(offset(T={0: 1}), StreamOffset({}), {"b": "/data/b"})
    assert other["behind"] is None


def test_a_queue_that_ends_before_the_position_has_no_lag() -> None:
    assert progress_report(offset(T={0: 3}), offset(T={0: 5}), {"b": "/data/b"})["behind"] == 0


def test_a_report_can_be_read_as_an_offset() -> None:
    ends = offset(T={0: 10})
    report = progress_report(ends, offset(T={0: 3}), {"b": "/data/b"})
    assert StreamOffset.from_json(json.dumps(report)) == ends
