import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.write_options import parse_write_options
from segmentlog.connector.options.write_table import Selector
from segmentlog.connector.write.planning import SinkPlan, plan_write
from segmentlog.spark import UnknownTopicError
from segmentlog.store import (
    ConfigError,
    FormatError,
    MessageStore,
    NotAStoreError,
    Outgoing,
    StoreConfig,
    UnsafeFileError,
)
from support.sink_tasks import CONFIG, SMALL

SCHEMA = StructType([StructField("body", StringType()), StructField("topic", StringType())])


def plan(path: Path, mode: Mode = Mode.BATCH, schema: StructType = SCHEMA, **options: str) -> SinkPlan:
    return plan_write(parse_write_options({"path": str(path)} | options, mode), schema, mode)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with MessageStore.open(path, CONFIG) as opened:
        for topic, queue in (("a", 0), ("a", 2), ("b", 1)):
            opened.append(Outgoing(topic=topic, body=b"x", queue_id=queue))
    return path


def test_a_store_that_is_there_says_its_sizes_and_queues(store: Path) -> None:
    found = plan(store, queueSelector="roundrobin", defaultQueueNums="5", maxMessageSize="1m")
    assert found.options.config == StoreConfig(
        segment_bytes=64 << 10, queue_segment_entries=100, index_slots=100, index_entries=400, max_body_bytes=1 << 20
    )
    assert found.rules.counts == {"a": 3, "b": 2}
    assert (found.rules.selector, found.rules.default_queues, found.rules.create_topic) == (
        Selector.ROUND_ROBIN,
        5,
        True,
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_one_topic_needs_no_other(store: Path) -> None:
    assert plan(store, topic="a").rules.counts == {"a": 3}
    assert plan(store, topic="new").rules.counts == {}


def test_topics_without_a_document(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    document = store / "config" / "topics.json"
    document.write_text('{"topicConfigTable": {"a": {"writeQueueNums": 7}, "c": {"writeQueueNums": 4}}}')
    assert plan(store).rules.counts == {"a": 7, "b": 2, "c": 4}
    for text in ("{", '{"topicConfigTable": []}', '{"topicConfigTable": {"a": 3, "b": {"writeQueueNums": "x"}}}'):
        document.write_text(text)
        (store / "config" / "topics.json.bak").unlink(missing_ok=True)
        assert plan(store).rules.counts == {"a": 3, "b": 2}
    assert "Topics have as many queues as there are files of" in caplog.text
    document.write_text("{")
    with pytest.raises(FormatError):
        plan(store, createTopic="false")


def test_no_topic_is_made_that_may_not_be(store: Path, tmp_path: Path) -> None:
    assert plan(store, topic="a", createTopic="false").rules.counts == {"a": 3}
    for path in (store, tmp_path / "new"):
        with pytest.raises(UnknownTopicError, match="option `topic` asks for topic `new`"):
            plan(path, topic="new", createTopic="false")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_an_absent_store_is_created(tmp_path: Path, mode: Mode) -> None:
    found = plan(tmp_path / "new", mode, topic="t", **SMALL)
    assert found.options.config == CONFIG
    assert (tmp_path / "new" / "commitlog").is_dir()
    assert not (tmp_path / "new" / "abort").exists()


def test_a_stream_only_looks(store: Path) -> None:
    def times() -> dict[str, int]:
        return {str(file): file.stat().st_mtime_ns for file in store.rglob("*")}

    before = times()
    plan(store, Mode.STREAM, topic="t")
    assert times() == before
    plan(store, Mode.BATCH, topic="t")
    assert times() != before


@pytest.mark.parametrize(
    ("name", "text", "held"),
    [
        ("mappedFileSizeCommitLog", "128k", "131072, and the store that is there has 65536"),
        ("mappedFileSizeConsumeQueue", "4000", "4000, and the store that is there has 2000"),
        ("maxHashSlotNum", "101", "101, and the store that is there has 100"),
        ("maxIndexNum", "401", "401, and the store that is there has 400"),
    ],
)
def test_sizes_that_are_not_the_stores(store: Path, name: str, text: str, held: str) -> None:
    with pytest.raises(ConfigError, match=f"option `{name}` is {held}"):
        plan(store, **SMALL | {name: text})
    plan(store, **SMALL)


def _file(path: Path) -> None:
    path.rmdir()
    path.touch()


def _other_things(path: Path) -> None:
    (path / "thesis.doc").touch()


def _no_parent(path: Path) -> None:
    path.rmdir()
    path.parent.rmdir()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (_file, UnsafeFileError, "something else is there"),
        (_other_things, NotAStoreError, "this directory has no store, but other files, like 'thesis.doc'"),
        (_no_parent, NotAStoreError, "Make .* first"),
    ],
)
@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_where_no_store_can_be(
    tmp_path: Path, mode: Mode, make: Callable[[Path], None], error: type[Exception], text: str
) -> None:
    path = tmp_path / "parent" / "store"
    os.makedirs(path)
    make(path)
    with pytest.raises(error, match=text):
        plan(path, mode, topic="t", **SMALL)


def test_columns_come_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column `body` of the frame has type int"):
        plan(tmp_path / "new", schema=StructType([StructField("body", IntegerType())]), topic="t")
    assert not (tmp_path / "new").exists()
