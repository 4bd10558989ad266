"""Every store that real RocketMQ wrote, read in every way that users have: rows, queues and answers are RocketMQ's.

::

    Python     segmentlog.open(store).scan(…)      one store after the other
    command    segmentlog cat STORE … -o jsonl     one store after the other
    batch      spark.read                          all stores in one job, told apart by brokerName
    stream     spark.readStream, AvailableNow      all stores in one query

The differences that are meant are in `support.conformance`; ``docs/compatibility.md`` lists the same ones.
"""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import segmentlog
from segmentlog.command.errors import FOUND, NOT_FOUND
from segmentlog.store import OffsetOutOfRangeError, QueueSource, Snapshot
from segmentlog.store.find import Finder, KeyField, Window
from support import conformance, fixtures, reading
from support.commands import run_command
from support.scale import SPREAD_CASES, sample, scale, spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.conformance

NAMES = sample(fixtures.names(), SPREAD_CASES)
"""Stores of this run, which are those of the cases that a quick run has of each test."""
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
TIMES = ("bornTimestamp", "storeTimestamp")
Rows = list[reading.Row]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the paths of all stores, which are only read. The names are those of brokers as well."""
    folder = tmp_path_factory.mktemp("stores")
    return {name: fixtures.unpack(name, folder / name) for name in NAMES}


def by_python(store: Path) -> Rows:
    with segmentlog.open(store) as opened:
        topics = opened.topics().to_arrow()["topic"].to_pylist()
        scan = opened.scan(topics, columns=reading.ALL_COLUMNS, on_corrupt="null") if topics else None
        return scan.to_arrow().to_pylist(maps_as_pydicts="strict") if scan else []


def by_command(store: Path) -> Rows:
    topics = [row["topic"] for row in printed("topics", store, "--all")]
    asked = (*topics, "--columns", ",".join(reading.ALL_COLUMNS), "--on-corrupt", "null")
    return [from_json(row) for row in printed("cat", store, *asked)] if topics else []


def printed(verb: str, store: Path, *arguments: object) -> list[dict[str, Any]]:
    """Rows that the command prints; it may warn of lost queues."""
    ran = run_command(verb, store, *arguments, "-o", "jsonl")
    assert ran.code in {FOUND, NOT_FOUND}, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def from_json(row: dict[str, Any]) -> reading.Row:
    """A row of the command as Arrow has it."""
    row["body"] = bytes.fromhex(row.pop("bodyHex")) if "bodyHex" in row else (row["body"] or "").encode()
    return row | {name: row[name] and datetime.fromisoformat(row[name]) for name in TIMES}


def options(stores: dict[str, Path]) -> dict[str, str]:
    return {
        "paths": json.dumps([str(path) for path in stores.values()]),
        "subscribePattern": ".*",
        "includeSystemTopics": "true",
        "columns": ",".join(reading.ALL_COLUMNS),
        "checkCrc": "true",
        "corruptRecord": "null",
        "maxBytesPerPartition": "300k",
    }


def by_store(frame: "DataFrame") -> dict[str, Rows]:
    assert tuple(frame.columns) == reading.ALL_COLUMNS
    found: dict[str, Rows] = {name: [] for name in NAMES}
    for row in frame.toArrow().to_pylist(maps_as_pydicts="strict"):
        found[row["brokerName"]].append(row)
    return found


@pytest.fixture(scope="module")
def by_batch(spark: "SparkSession", stores: dict[str, Path]) -> dict[str, Rows]:
    return by_store(spark.read.format("segmentlog").options(**options(stores)).load())


@pytest.fixture(scope="module")
def by_stream(
    spark: "SparkSession", stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Rows]:
    frame = spark.readStream.format("segmentlog").options(**options(stores), startingOffsets="earliest").load()
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    writer = frame.writeStream.format("memory").queryName("all_stores").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return by_store(spark.table("all_stores"))


def check_rows(name: str, rows: Rows, *, checks_crc: bool) -> None:
    conformance.check_rows(name, rows, QueueSource.AUTO, checks_crc=checks_crc)
    for of_queue in reading.by_queue(iter(rows)).values():
        offsets = [row["queueOffset"] for row in of_queue]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


@pytest.mark.parametrize("read", [by_python, by_command])
@pytest.mark.parametrize("name", fixtures.names())
def test_rows_are_rocketmqs(name: str, read: Callable[[Path], Rows], stores: dict[str, Path]) -> None:
    check_rows(name, read(stores[name]), checks_crc=False)


@pytest.mark.spark
@pytest.mark.parametrize("name", fixtures.names())
def test_rows_of_batches_are_rocketmqs(name: str, by_batch: dict[str, Rows]) -> None:
    check_rows(name, by_batch[name], checks_crc=True)


@pytest.mark.spark
@pytest.mark.parametrize("name", fixtures.names())
def test_rows_of_streams_are_rocketmqs(name: str, by_stream: dict[str, Rows]) -> None:
    check_rows(name, by_stream[name], checks_crc=True)


def check_queues(name: str, rows: Iterable[dict[str, Any]]) -> None:
    found = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows}
    conformance.check_queues(name, found)


@pytest.mark.parametrize("name", fixtures.names())
def test_topics_and_queues_are_rocketmqs(name: str, stores: dict[str, Path]) -> None:
    with segmentlog.open(stores[name]) as store:
        queues, topics = (table.to_arrow().to_pylist() for table in (store.queues(), store.topics()))
    check_queues(name, queues)
    check_queues(name, printed("queues", stores[name]))
    of_queues = {row["topic"] for row in queues}
    assert of_queues == {row["topic"] for row in topics}
    assert of_queues == {row["topic"] for row in printed("topics", stores[name], "--all")}


@pytest.mark.spark
@pytest.mark.scaled
def test_queues_in_spark_are_rocketmqs(spark: "SparkSession", stores: dict[str, Path]) -> None:
    asked = {
        "metadata": "queues",
        "subscribePattern": ".*",
        "includeSystemTopics": "true",
        "paths": options(stores)["paths"],
    }
    rows = [row.asDict() for row in spark.read.format("segmentlog").options(**asked).load().collect()]
    for name in NAMES:
        check_queues(name, [row for row in rows if row["brokerName"] == name])


@pytest.mark.parametrize("name", fixtures.names())
def test_keys_are_found_as_by_the_finder(name: str, stores: dict[str, Path]) -> None:
    """The finder is compared with RocketMQ's answers by ``test_find.py``."""
    snapshot = Snapshot.open(stores[name])
    finder, known = Finder(snapshot), snapshot.topics()
    with segmentlog.open(stores[name]) as store:
        for question in some(fixtures.queries(name, "messageByKey")):
            topic, key, start, stop = (question[part] for part in ("topic", "key", "begin", "end"))
            if topic not in known:  # RocketMQ finds nothing; we name the topics
                assert not question["answer"]["phyOffsets"]
                with pytest.raises(segmentlog.UnknownQueueError, match="there is no topic"):
                    store.find(topic, keys=key)
                continue
            found = finder.by_keys([topic], [key], KeyField.EITHER, window=Window(start, stop + 1))
            times = {"start": segmentlog.Time(ms=start), "end": segmentlog.Time(ms=stop + 1)}
            asked = ("--topic", topic, "--from", iso(start), "--to", iso(stop + 1), "--columns", "physicalOffset")
            python, command = set[int](), set[int]()
            for field in ("keys", "unique_keys"):
                python.update(
                    store.find(topic, **{field: key}, **times, columns="physicalOffset")
                    .to_arrow()["physicalOffset"]
                    .to_pylist()
                )
                flag = "--" + field.removesuffix("s").replace("_", "-") + "=" + key
                command.update(row["physicalOffset"] for row in printed("get", stores[name], flag, *asked))
            assert python == command == set(found.physical_offset.tolist()), question


def some(questions: list[fixtures.Line]) -> list[fixtures.Line]:
    """A few questions at every scale, evenly spread: each is some command lines."""
    return [questions[number] for number in sorted(spread(len(questions), scale(2, 5, 5)))]


def iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


@pytest.mark.parametrize("name", fixtures.names())
def test_records_are_found_by_their_places_as_rocketmq_finds_them(name: str, stores: dict[str, Path]) -> None:
    answers = {query["phyOffset"]: query["answer"] for query in fixtures.queries(name, "messageByOffset")}
    answers = {
        place: answer for place, answer in answers.items() if place >= 0
    }  # we refuse others; RocketMQ finds none
    expected = {place: answer["msgId"] for place, answer in answers.items() if answer}
    python, damaged = dict[int, str](), set[int]()
    with segmentlog.open(stores[name]) as store:
        for place in answers:
            try:
                message = store.get(physical_offset=place)
            except segmentlog.CorruptError:
                damaged.add(place)
            else:
                python |= {} if message is None else {place: message.message_id}
    flags = [f"--physical-offset={place}" for place in answers]
    columns = ("--columns", "physicalOffset,msgId")
    rows = printed("get", stores[name], *flags, *columns) if flags else []
    assert python == {row["physicalOffset"]: row["msgId"] for row in rows if row["physicalOffset"] not in damaged}
    difference = conformance.DIFFERENCES.get(name, conformance.NONE)
    assert python.items() >= expected.items() or difference.fewer
    assert len(damaged) <= difference.damaged
    assert len(python) == len(expected) or difference.more or difference.fewer


@pytest.mark.parametrize("name", fixtures.names())
def test_messages_from_an_offset_are_rocketmqs(name: str, stores: dict[str, Path]) -> None:
    if conformance.DIFFERENCES.get(name, conformance.NONE).times:
        pytest.skip("RocketMQ lost messages")
    with segmentlog.open(stores[name]) as store:
        for query in some(fixtures.queries(name, "get")):
            topic, queue, offset = query["topic"], query["queueId"], query["offset"]
            status, offsets = query["answer"]["status"], query["answer"]["queueOffsets"]
            if status in {"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY"}:  # RocketMQ says where to read on; we refuse
                with pytest.raises(OffsetOutOfRangeError if offset >= 0 else segmentlog.ConfigError):
                    store.scan(topic, start={queue: offset})
                continue
            assert status == ("FOUND" if offsets else "OFFSET_OVERFLOW_ONE")
            if topic.startswith("%LMQ%"):  # RocketMQ returns the offsets in the records' own topics
                offsets = list(range(offset, offset + len(offsets)))
            count = max(1, len(offsets))
            table = store.scan(topic, start={queue: offset}).head(count)
            asked = ("-p", queue, "--from", offset, "-n", count, "--columns", "queueOffset")
            assert table["queueOffset"].to_pylist() == offsets
            assert [row["queueOffset"] for row in printed("cat", stores[name], topic, *asked)] == offsets


def test_the_documented_differences_are_in_the_tests() -> None:
    rows = re.findall(r"^\| ((?:`[\w.-]+`(?:, )?)+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name: why for names, why in rows for name in re.findall(r"`([^`]+)`", names)}
    assert documented == {name: difference.why for name, difference in conformance.DIFFERENCES.items()}
