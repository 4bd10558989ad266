from pathlib import Path

import pyarrow as pa

from segmentlog.query.selection import TopicPattern
from segmentlog.query.system_frames import SystemWindow, ids_of, instants, is_true, last_places, whole_numbers
from segmentlog.store import Snapshot
from segmentlog.store.find import Finder
from support.system_store import SystemStore

WIDE = 1 << 62


def test_numbers_that_have_no_room_are_null() -> None:
    texts = pa.array(["7", "-7", "", "7.0", " 7", "9" * 18, "9" * 19, None, "٣"])
    numbers = whole_numbers(texts)
    assert numbers.to_pylist() == [7, -7, None, None, None, 10**18 - 1, None, None, None]
    assert ids_of(numbers).to_pylist() == [7, -7, *[None] * 7]
    assert ids_of(pa.array([-(1 << 31), 1 << 31])).to_pylist() == [-(1 << 31), None]
    millis = instants(pa.array([0, 5, WIDE, -WIDE, None])).cast(pa.int64())
    assert millis.to_pylist() == [0, 5000, None, None, None]


def test_null_is_not_true() -> None:
    assert is_true(pa.array([True, False, None])).tolist() == [True, False, False]


def test_topics_that_are_unknown_are_in_a_window_of_all_topics_alone() -> None:
    topics = pa.array(["orders", None, "%RETRY%etl"])
    assert SystemWindow().keeps(topics).all()
    assert SystemWindow(topics=TopicPattern(".*")).keeps(topics).tolist() == [True, False, False]


def test_the_last_record_of_a_unique_key_is_found(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.put("orders", key="a")
    again = made.put("orders", key="a")
    made.put("payments", key="b")
    finder = Finder(Snapshot.open(made.close()))
    topics, keys = pa.array(["orders", "orders", None, "orders", "none"]), pa.array(["a", "b", "a", None, "a"])
    assert last_places(finder, topics, keys).tolist() == [again.physical_offset, -1, -1, -1, -1]
    assert last_places(finder, topics[2:4], keys[2:4]).tolist() == [-1, -1]
