import asyncio
import errno
import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import segmentlog
from segmentlog import (
    Config,
    ConfigError,
    IllegalMessageError,
    StoreClosedError,
    UnknownQueueError,
    WritableStore,
)
from segmentlog.store.directory.topics import DEFAULT_QUEUES, TopicTable, topic_queues

BATCH = {"topic": ["orders", "refunds"], "body": [b"1", b"2"], "tags": ["a", None]}


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WritableStore]:
    with segmentlog.open(tmp_path / "store", "x", config=Config(segment_bytes=1 << 20)) as store:
        yield store


def test_all_that_a_message_has_is_stored(written: WritableStore) -> None:
    place = written.append(
        "orders",
        b"body",
        queue=3,
        tags="paid",
        keys=["order-17", "customer-4"],
        unique_key="u1",
        properties={"region": "eu"},
        flag=5,
        born_ms=1_769_817_600_000,
        born_host="10.0.0.7:1234",
    )
    written.flush()
    message = written.get(message_id=place.message_id)
    assert message is not None
    assert (message.topic, message.queue_id, message.body, message.tags) == ("orders", 3, b"body", "paid")
    assert (message.keys, message.properties["region"], message.flag) == ("order-17 customer-4", "eu", 5)
    assert message.queue_offset == place.queue_offset == 0
    assert written.find("orders", keys="customer-4").count() == 1
    assert written.get(unique_key="u1", topic="orders") == message


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"keys": ["a b"]}, "keys has 'a b', which is not a key"), ({"keys": [7]}, "keys has 7"), ({"keys": [""]}, "''")],
)
def test_keys_are_texts_without_blanks(written: WritableStore, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        written.append("orders", b"", **arguments)


def test_errors_name_arguments_of_this_api(tmp_path: Path) -> None:
    config = Config(segment_bytes=1 << 20, max_body_bytes=10)
    with segmentlog.open(tmp_path / "store", "x", config=config) as store:
        with pytest.raises(IllegalMessageError, match=r" Config\(max_body_bytes=…\) raises the limit"):
            store.append("orders", bytes(11))
        with pytest.raises(IllegalMessageError):
            store.submit("not a topic", b"")
        with pytest.raises(ConfigError, match="Did you mean `tags`"):
            store.append("orders", b"", tag="a")  # type: ignore[call-arg]


def queues_of(path: Path) -> dict[str, int]:
    return {topic: count for topic, count in topic_queues(path).items() if not topic.startswith("%")}


def test_a_misspelled_topic_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with segmentlog.open(path, "x") as store:  # a store without topics gets those that are written
        store.append("orders", b"", queue=1)
        store.append_batch(pa.table({"topic": ["refunds", "orders"], "body": [b"", b""]}))
        store.submit("wide", b"", queue=11).result(timeout=300)
    assert queues_of(path) == {"orders": DEFAULT_QUEUES, "refunds": DEFAULT_QUEUES, "wide": 12}
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"empty": {"writeQueueNums": 2}}}))
    with segmentlog.open(path, "a") as store:
        for call in (
            lambda: store.append("ordrs", b""),
            lambda: store.submit("ordrs", b""),
            lambda: store.append_batch(pa.table({"topic": ["orders", "ordrs"], "body": [b"", b""]})),
        ):
            with pytest.raises(
                UnknownQueueError, match=r"no topic `ordrs`.*Did you mean `orders`\? .*create_topics=True"
            ):
                call()
        store.append("empty", b"")
        assert store.scan("orders").count() == 2
    with segmentlog.open(path, "a", create_topics=True) as store:
        store.append("new", b"")
        with pytest.raises(IllegalMessageError):
            store.append("not a topic", b"")
    assert queues_of(path) == {"empty": 2, "orders": 2, "refunds": 1, "wide": 12, "new": DEFAULT_QUEUES}


def test_a_message_of_a_new_topic_is_appended_where_the_topic_cannot_be_noted(
    written: WritableStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(TopicTable, "note", full)
        assert written.append("orders", b"1").queue_offset == 0
    assert "new topics have as many queues as messages need: [Errno 28]" in caplog.text
    assert written.append("orders", b"2").queue_offset == 1


def test_a_submitted_message_is_a_future(written: WritableStore) -> None:
    pending = [written.submit("orders", b"%d" % each) for each in range(3)]
    assert all(isinstance(each, Future) for each in pending)
    assert [each.result(timeout=300).queue_offset for each in pending] == [0, 1, 2]

    async def submitted() -> segmentlog.Appended:
        return await asyncio.wrap_future(written.submit("orders", b"3"))

    assert asyncio.run(submitted()).queue_offset == 3


@pytest.mark.parametrize(
    "made",
    [pa.table, pa.RecordBatch.from_pydict, pl.DataFrame, lambda batch: pa.table(batch).to_reader()],
    ids=["table", "batch", "polars", "reader"],
)
def test_rows_of_any_library_are_appended(written: WritableStore, made: Any) -> None:
    assert len(written.append_batch(made(BATCH), placement="one-segment").queue_offsets) == 2
    written.flush()
    assert written.scan(["orders", "refunds"], columns=["topic", "body", "tags"]).to_arrow().to_pydict() == BATCH


def test_a_batch_that_is_not_a_table_and_an_unknown_placement_are_refused(written: WritableStore) -> None:
    with pytest.raises(ConfigError, match="batch is a dict, not a table"):
        written.append_batch(BATCH)
    with pytest.raises(ConfigError, match=r"placement='any' is unknown.*'run-on', 'one-segment'"):
        written.append_batch(pa.table(BATCH), placement="any")


def test_rows_of_a_scan_are_appended(written: WritableStore, store: segmentlog.Store) -> None:
    scan = store.scan("orders", columns=["topic", "queueId", "body", "tags", "keys"])
    written.append_batch(scan)
    written.flush()
    assert written.scan("orders", columns=scan.schema.names).to_arrow() == scan.to_arrow()


def test_columns_of_a_scan_that_the_store_decides_are_left_out(written: WritableStore, tmp_path: Path) -> None:
    config = segmentlog.Config(segment_bytes=1 << 20, compress_over_bytes=1)
    with segmentlog.open(tmp_path / "compressed", "x", config=config) as source:
        source.append("orders", b"x" * 1000, tags="paid")
        source.flush()
        written.append_batch(source.scan("orders", columns="*"))
    written.flush()
    assert written.scan("orders", columns=["body", "tags"]).to_arrow().to_pylist()[-1:] == [
        {"body": b"x" * 1000, "tags": "paid"}
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topic": 5}, "topic=5 is not text"),
        ({"tags": 5}, "tags=5 is not text"),
        ({"tags": ["a"]}, r"tags=\['a'\] is not text"),
        ({"keys": 5}, "keys=5 is not a text or a list of texts"),
        ({"unique_key": 5}, "unique_key=5 is not text"),
        ({"queue": "0"}, "queue='0' is not a whole number"),
        ({"queue": None}, "queue=None is not a whole number"),
        ({"born_ms": 1.5}, "born_ms=1.5 is not a whole number"),
        ({"properties": "a"}, "properties is not a mapping of texts"),
        ({"properties": {"a": 5}}, "properties is not a mapping of texts"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(written: WritableStore, arguments: dict[str, Any], text: str) -> None:
    given = {"topic": "orders", "body": b"x", **arguments}
    for append in (written.append, written.submit):
        with pytest.raises(ConfigError, match=text):
            append(**given)


@pytest.mark.parametrize("name", ["topic", "body"])
def test_a_column_that_is_there_twice_is_refused(written: WritableStore, name: str) -> None:
    batch = pa.Table.from_arrays([pa.array(["orders"])] * 3, names=["topic", "body", name])
    with pytest.raises(ConfigError, match=f"column '{name}' is there twice"):
        written.append_batch(batch)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="path is empty"):
        segmentlog.open("")


def test_a_closed_store_appends_nothing(written: WritableStore) -> None:
    written.close()
    written.close()
    for call in (lambda: written.append("orders", b""), lambda: written.submit("orders", b""), written.topics):
        with pytest.raises(StoreClosedError):
            call()
