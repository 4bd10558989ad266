from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import segmentlog
from segmentlog import Time
from segmentlog.store import ConfigError, Snapshot, UnknownQueueError
from segmentlog.store.maintenance import rebuild_index
from support.reading import read

START_MS = 1_769_817_600_000


@pytest.mark.parametrize("with_index", [True, False])
def test_found_equals_a_filter_over_all_messages(store: segmentlog.Store, path: Path, with_index: bool) -> None:
    if with_index:
        rebuild_index(Snapshot.open(path), path / "index")
    keys = ["key-7", "key-8", "key-399", "absent"]
    rows = [row for row in read(Snapshot.open(path)) if row["keys"] in keys and row["topic"] == "payments"]
    found = store.find("payments", keys=keys, columns="*")
    assert found.to_arrow().drop_columns(["asked"]).to_pylist(maps_as_pydicts="strict") == sorted(
        rows, key=lambda row: row["physicalOffset"]
    )
    assert found.count() == 3
    assert found.missing().to_pylist() == [{"topic": "payments", "key": "absent"}]
    assert (found.coverage.indexed_bytes > 0) == with_index


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"keys": "key-5"}, [5]),
        ({"keys": pa.array(["key-5", "key-4"])}, [4, 5]),
        ({"keys": pa.chunked_array([["key-5"], ["key-4"]])}, [4, 5]),
        ({"keys": {"key-5", "key-4"}, "newest_first": True}, [5, 4]),
        ({"unique_keys": [f"{5:032X}"]}, [5]),
        ({"keys": ["key-4", "key-5"], "start": Time(ms=START_MS + 5000)}, [5]),
        ({"keys": ["key-4", "key-5"], "end": "2026-01-31T00:00:05Z"}, [4]),
    ],
)
def test_ways_to_ask(store: segmentlog.Store, arguments: dict[str, Any], numbers: list[int]) -> None:
    found = store.find("orders", columns=["keys"], properties="UNIQ_KEY", **arguments)
    assert found.schema.names == ["keys", "UNIQ_KEY", "asked"]
    assert found.to_arrow()["keys"].to_pylist() == [f"key-{number}" for number in numbers]
    assert found.head(1)["UNIQ_KEY"].to_pylist() == [f"{numbers[0]:032X}"]
    assert found.head(0).num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "keys and unique_keys are both missing"),
        ({"keys": "a", "unique_keys": "b"}, "keys and unique_keys are both passed"),
        ({"keys": 7}, "keys is not a list of texts"),
        ({"unique_keys": [7]}, "unique_keys is not a list of texts"),
        ({"keys": ["a", "\ud800"]}, "is not a text that UTF-8 can encode"),
        ({"keys": b"a"}, "keys is not a list of texts"),
        ({"keys": ["a", None]}, "nulls"),
        ({"keys": "a", "start": {0: 1}}, "start=.* is a dict"),
    ],
)
def test_arguments_that_make_no_sense(store: segmentlog.Store, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        store.find("orders", **arguments)


def test_one_message_by_each_way_to_name_it(store: segmentlog.Store, path: Path) -> None:
    for row in list(read(Snapshot.open(path)))[::97]:
        place = {"topic": row["topic"], "queue": row["queueId"], "offset": row["queueOffset"]}
        named = {"unique_key": row["uniqKey"], "topic": row["topic"]}
        for arguments in ({"message_id": row["msgId"]}, {"physical_offset": row["physicalOffset"]}, place, named):
            found = store.get(**arguments)
            assert found is not None
            assert (found.physical_offset, found.body, found.topic) == (
                row["physicalOffset"],
                row["body"],
                row["topic"],
            )
    assert store.get(unique_key=f"{3:032X}") == store.get(topic="orders", queue=3, offset=0)  # the oldest of two
    assert store.get(unique_key="absent") is None
    assert store.get(physical_offset=1) is None
    numbers = {"queue": np.int32(3), "offset": np.int64(0)}  # as pandas has them
    assert store.get(topic="orders", **numbers) == store.get(topic="orders", queue=3, offset=0)  # type: ignore[arg-type]
    assert store.get(topic="orders", queue=0, offset=100) is None
    assert store.get(topic="orders", queue=9, offset=0) is None
    assert store.get(message_id="0" * 32) is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "nothing says which message is meant.*Pass message_id, unique_key, physical_offset, or topic with"),
        ({"topic": "orders"}, "nothing says which message is meant"),
        ({"message_id": "A", "physical_offset": 0}, "message_id and physical_offset are passed together"),
        ({"physical_offset": 0, "topic": "orders"}, "topic is passed with physical_offset"),
        ({"queue": 0, "offset": 1}, "queue and offset name a message together with topic"),
        ({"topic": "orders", "queue": 0}, "queue and offset name a message together with topic"),
        ({"topic": "orders", "queue": 0, "offset": -1}, "offset=-1 is not a whole number"),
        ({"topic": "orders", "queue": "0", "offset": 1}, "queue='0' is not a whole number"),
        ({"topic": iter(["orders"]), "queue": 0, "offset": 1}, "topic=.* is not text"),
        ({"physical_offset": "0"}, "physical_offset='0' is not a whole number"),
        ({"physical_offset": 1 << 63}, "physical_offset=9223372036854775808 is not a whole number"),
        ({"unique_key": 7}, "unique_key=7 is not text"),
    ],
)
def test_ways_that_name_no_message(store: segmentlog.Store, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        store.get(**arguments)


def test_names_that_do_not_exist(store: segmentlog.Store) -> None:
    with pytest.raises(UnknownQueueError, match="Did you mean `orders`"):
        store.get(topic="order", queue=0, offset=0)
    with pytest.raises(ConfigError):
        store.get(message_id="no id")
