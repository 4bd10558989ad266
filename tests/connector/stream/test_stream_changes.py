"""A query that is started again with something changed: each line of the table in ``docs/streaming.md``."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from segmentlog.connector.errors import CheckpointError, ConflictingOptionsError, OtherStoreError
from segmentlog.store import DataLossError, MessageStore, Outgoing, SegmentLogError, StoreConfig
from support.streams import Row, Stream

CONFIG = StoreConfig(segment_bytes=1 << 20, queue_segment_entries=100, index=False)
FIRST = {"subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}


def put(path: Path, total: int, topic: str = "T", queues: int = 2, body: bytes = b"body") -> None:
    """Append messages to queues in turn, every third with a tag."""
    path.parent.mkdir(exist_ok=True)
    with MessageStore.open(path, CONFIG) as store:
        for number in range(total):
            tags = "third" if number % 3 == 0 else None
            store.append(Outgoing(topic=topic, body=body, queue_id=number % queues, tags=tags))


def rows(topic: str, *queues: range) -> set[Row]:
    """Name the rows of some offsets of the queues of a topic, the first of which is 0."""
    return {(topic, queue, offset) for queue, offsets in enumerate(queues) for offset in offsets}


REST = rows("T", range(4, 6), range(4, 6))
"""The rest of T after the first batch, 4 messages of either queue."""
U = rows("U", range(2), range(2))


def nothing(_: Path) -> None:
    """Leave the stores as they are."""


def more_queues(folder: Path) -> None:
    put(folder / "a" / "store", 4, queues=4)


def moved(folder: Path) -> None:
    shutil.move(folder / "a", folder / "moved")


def gone(folder: Path) -> None:
    shutil.rmtree(folder / "a")


def other_store(folder: Path) -> None:
    shutil.rmtree(folder / "a" / "store")
    put(folder / "a" / "store", 30)


def smaller_store(folder: Path) -> None:
    """An earlier copy of the store, which is the same one."""
    name = (folder / "a" / "store" / ".segmentlog" / "id").read_bytes()
    shutil.rmtree(folder / "a" / "store")
    put(folder / "a" / "store", 3)
    (folder / "a" / "store" / ".segmentlog" / "id").write_bytes(name)


def topic_made_anew(folder: Path) -> None:
    """Another store in which U came first: T has as many messages, at other places."""
    shutil.rmtree(folder / "a" / "store")
    put(folder / "a" / "store", 4, topic="U")
    put(folder / "a" / "store", 12)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change, and the rows that the query then reads, or its error."""

    given: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    act: Callable[[Path], None] = nothing
    before: str = "a"
    after: str = "a"
    wants: set[Row] | type[SegmentLogError] = field(default_factory=lambda: REST)
    says: str = ""


CHANGES = {
    "startingOffsets latest": Change(given={"startingOffsets": "latest"}),
    "startingOffsets JSON": Change(given={"startingOffsets": '{"T": {"0": 1, "1": 1}}'}),
    "startingTimestamp": Change(given={"startingTimestamp": "1970-01-01T00:00:01Z"}, without=("startingOffsets",)),
    "no start at all": Change(without=("startingOffsets",)),
    "a smaller limit": Change(given={"maxOffsetsPerTrigger": "1"}),
    "no limit": Change(without=("maxOffsetsPerTrigger",)),
    "a limit in bytes": Change(given={"maxBytesPerTrigger": "300"}, without=("maxOffsetsPerTrigger",)),
    "a minimum": Change(given={"minOffsetsPerTrigger": "3"}),
    "smaller partitions": Change(given={"maxRecordsPerPartition": "1"}),
    "tags": Change(given={"tags": "third"}, wants={("T", 1, 4)}),
    "SQL filter": Change(given={"sqlFilter": "TAGS IN ('third', 'tenth') AND TAGS <> 'x'"}, wants={("T", 1, 4)}),
    "columns": Change(given={"columns": "topic,queueId,queueOffset"}),
    "checkCrc": Change(given={"checkCrc": "true"}),
    "queues derived from the log": Change(given={"queueSource": "commitlog"}),
    "failOnDataLoss": Change(given={"failOnDataLoss": "false"}),
    "a consumer group": Change(given={"consumerGroup": "g"}),
    "one topic more": Change(given={"subscribe": "T,U"}, wants=REST | U),
    "another topic": Change(given={"subscribe": "U"}, wants=U),
    "a pattern": Change(given={"subscribePattern": ".*"}, without=("subscribe",), wants=REST | U),
    "one queue": Change(given={"assign": '{"T": [0]}'}, without=("subscribe",), wants=rows("T", range(4, 6))),
    "more queues": Change(act=more_queues, wants=rows("T", range(4, 7), range(4, 7), range(1), range(1))),
    "moved": Change(act=moved, after="moved"),
    "moved, with more queues": Change(
        act=lambda folder: (more_queues(folder), moved(folder))[1],
        after="moved",
        wants=rows("T", range(4, 7), range(4, 7), range(1), range(1)),
    ),
    "one store more": Change(before="a,b", after="a,b,c"),
    "the other order": Change(before="a,b", after="b,a"),
    "a store less": Change(before="a,b", after="a,c", wants=OtherStoreError),
    "other names": Change(
        given={"brokerNames": "x,y"},
        before="a,b",
        after="a,b",
        wants=OtherStoreError,
        says="the checkpoint has the stores `a`, `b`, this query reads `x`, `y`",
    ),
    "moved, with names": Change(given={"brokerNames": "a,b"}, act=moved, before="a,b", after="moved,b"),
    "another store": Change(act=other_store, wants=OtherStoreError, says="made on the store with id"),
    "a topic made anew": Change(act=topic_made_anew, wants=OtherStoreError),
    "a store that lost its end": Change(act=smaller_store, wants=DataLossError),
    "no store": Change(act=gone, wants=SegmentLogError),
    "an end": Change(given={"endingOffsets": "latest"}, wants=ConflictingOptionsError),
}


def opened(folder: Path, stores: str, checkpoint: str | None, **options: str) -> Stream:
    """Start a query over stores by the names of their folders."""
    paths = [str(folder / name / "store") for name in stores.split(",")]
    if len(paths) > 1:
        return Stream(None, checkpoint, available_now=True, paths=json.dumps(paths), **options)
    return Stream(paths[0], checkpoint, available_now=True, **options)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three stores, of which each test changes copies."""
    folder = tmp_path_factory.mktemp("stores")
    for store in ("a", "b", "c"):
        put(folder / store / "store", 12)
        put(folder / store / "store", 4, topic="U")
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_started_again(stores: Path, tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    several = "," in change.before
    for store in {*change.before.split(","), *change.after.split(",")} - {"moved"}:
        shutil.copytree(stores / store, tmp_path / store)
    stream = opened(tmp_path, change.before, None, **FIRST)
    first = stream.batch()
    assert first is not None
    assert len(first) == 8
    change.act(tmp_path)
    options = {key: value for key, value in FIRST.items() if key not in change.without} | change.given
    if isinstance(change.wants, type):
        with pytest.raises(change.wants, match=change.says or None):
            opened(tmp_path, change.after, stream.offset, **options).all()
        return
    again = opened(tmp_path, change.after, stream.offset, **options)
    found = Counter(again.all())
    if several:  # the messages of each store have the same names
        stores = len(change.after.split(","))
        assert found + Counter(first) == Counter(dict.fromkeys(rows("T", range(6), range(6)), stores))
    else:
        assert found == Counter(change.wants)
    assert again.batch() is None


def test_a_broker_that_a_pattern_matches_later_is_read_from_its_first_messages(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "a", tmp_path / "a")
    pattern = str(tmp_path / "*" / "store")
    stream = Stream(pattern, None, available_now=True, **FIRST)
    first = stream.batch()
    shutil.copytree(stores / "b", tmp_path / "b")
    assert stream.batch() is not None, "a query has the stores of its start"
    again = Stream(pattern, stream.offset, available_now=True, **FIRST)
    assert Counter(again.all()) == Counter(rows("T", range(6), range(6)))
    assert len(first or []) == 8
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(OtherStoreError, match="the checkpoint has the stores `a`, this query reads `b`"):
        Stream(pattern, again.offset, available_now=True, **FIRST).all()


@pytest.mark.parametrize("text", ['{"T": {"0": 4, "1": 4}}', '{"stores": {}, "version": 9}', "[]", "7"])
def test_a_checkpoint_of_another_source(stores: Path, text: str) -> None:
    with pytest.raises(CheckpointError):
        opened(stores, "a", text, **FIRST).all()


def test_a_store_that_is_missing_can_be_left_out(stores: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = opened(stores, "a,b,c", None, **FIRST | {"maxOffsetsPerTrigger": "12"})
    stream.batch()
    with pytest.raises(OtherStoreError):
        opened(stores, "b,c", stream.offset, **FIRST).all()
    left = opened(stores, "b,c", stream.offset, **FIRST, failOnDataLoss="false")
    assert Counter(left.all()) == Counter(2 * sorted(rows("T", range(2, 6), range(2, 6))))
    assert "`a`" in caplog.text
