import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.command.parser import Parser
from segmentlog.command.selection import Selection, asked_window, clock_of, selected_spec
from segmentlog.command.verbs.messages import add_cat
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.read import plan_partitions
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.selection import UnknownTopicError
from segmentlog.query.times import StartAfterEndError
from segmentlog.store import (
    DEFAULT_COLUMNS,
    NATIVE_SCHEMA,
    ConfigError,
    CorruptRecordError,
    DataLossError,
    MessageStore,
    OffsetOutOfRangeError,
    Outgoing,
    QueueKey,
    ScanSpec,
    Snapshot,
    StoreConfig,
    UnconfirmedError,
    UnknownQueueError,
    errors,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.log.confirmed import ConfirmationFile
from support.commands import Ran, run_command
from support.known_store import START_MS
from support.reading import millis
from support.reading import read as every_row
from support.system_store import build_system_store
from support.tampering import overwrite

Row = dict[str, Any]
EARLY = "2026-01-31T00:00:10Z"
LATE = "2026-01-31T00:05:00Z"

Window = tuple[str | None, str | None]


def at(ms: int) -> str:
    """Return a time of the known store, whose messages are stored a second apart, from 0 on."""
    return datetime.fromtimestamp((START_MS + ms) / 1000, UTC).isoformat(timespec="milliseconds")


def seconds(row: Row) -> float:
    return (millis(row["storeTimestamp"]) - START_MS) / 1000


def spark(path: Path, topic: str, window: Window) -> set[str]:
    options = {"path": str(path), "subscribe": topic}
    for text, name in zip(window, ("starting", "ending"), strict=True):
        if text is not None:
            is_time = text.startswith(("2026", "-"))
            options[f"{name}{'Timestamp' if is_time else 'Offsets'}"] = text
    if window[0] and window[0].startswith("{"):  # a table limits the queues in the other doors
        options["assign"] = json.dumps({topic: list(map(int, json.loads(window[0])[topic]))})
        del options["subscribe"]
    partitions = plan_partitions(parse_read_options(options), ScanSpec(columns=("body",)))
    return {f"{each.key}[{each.start}, {each.stop})" for part in partitions for each in part.task.ranges}


def python(path: Path, topic: str, window: Window) -> set[str]:
    with segmentlog.open(path) as store:
        return set(map(str, store.scan(topic, start=window[0], end=window[1]).ranges))


def command(path: Path, topic: str, window: Window) -> set[str]:
    parser = Parser("cat", "messages")
    add_cat(parser)
    flags = [f"{flag}={text}" for flag, text in zip(("--from", "--to"), window, strict=True) if text is not None]
    options = parser.parse([str(path), topic, *flags])
    scan = Selection(options, selected_spec(options, ("body",))).scan(*asked_window(options, clock_of(options)))
    return set(map(str, scan.ranges))


DOORS = {"spark": spark, "python": python, "command": command}
every = pytest.mark.parametrize("door", DOORS)


def all_queues(start: int, stop: int) -> set[str]:
    return {f"orders/{queue}[{start}, {stop})" for queue in range(4)}


@every
@pytest.mark.parametrize(
    ("window", "ranges"),
    [
        (('{"orders": {"0": 12, "2": "last:5"}}', None), {"orders/0[12, 100)", "orders/2[95, 100)"}),
        ((None, None), all_queues(0, 100)),
        (("earliest", "latest"), all_queues(0, 100)),
        (("last:3", None), all_queues(97, 100)),
        ((None, "group:etl"), all_queues(0, 20)),
        (("last:300", "last:98"), all_queues(0, 2)),
        (("group:etl", None), all_queues(20, 100)),
        ((EARLY, LATE), {"orders/0[3, 75)", "orders/1[3, 75)", "orders/2[2, 75)", "orders/3[2, 75)"}),
        (('{"orders": {"0": 100}}', None), set()),
    ],
)
def test_messages(door: str, path: Path, window: Window, ranges: set[str]) -> None:
    assert DOORS[door](path, "orders", window) == ranges


@every
@pytest.mark.parametrize(
    ("window", "kind", "problem"),
    [
        ((None, None), UnknownTopicError, r"there is no topic `ordrs` .*Did you mean `orders`\?"),
        (("group:elt", None), ConfigError, "consumer group `elt` has no position here.*Did you mean `etl`"),
        (('{"orders": {"0": 101}}', None), OffsetOutOfRangeError, r"offset 101 of orders/0|offset 101 is"),
        ((LATE, EARLY), StartAfterEndError, r"\(2026-01-31T00:05:00Z\) is after .*\(2026-01-31T00:00:10Z\)"),
        (("last:5", "last:6"), StartAfterEndError, r"\(last:5\) is after .*\(last:6\)"),
        (("noon:", None), ConfigError, "`noon:` is not a position"),
    ],
)
def test_errors(door: str, path: Path, window: Window, kind: type[Exception], problem: str) -> None:
    topic = "ordrs" if kind is UnknownTopicError else "orders"
    if door == "command" and window[0] == '{"orders": {"0": 101}}':
        assert DOORS[door](path, topic, window) == set()  # an offset after the end is the end
        return
    with pytest.raises(kind, match=problem):
        DOORS[door](path, topic, window)


IN_SPARK = {
    "columns": "columns",
    "properties": "propertyColumns",
    "tags": "tags",
    "sql": "sqlFilter",
    "on_corrupt": "corruptRecord",
    "check_crc": "checkCrc",
    "read_from": "readFrom",
}
"""Options of Spark by arguments of Python; flags of the command are named as these, but for tags."""


def spark_options(asked: dict[str, str]) -> dict[str, str]:
    options = {IN_SPARK[name]: text for name, text in asked.items() if name in IN_SPARK}
    for name in asked.keys() & {"start", "end"}:
        kind = "Timestamp" if asked[name].startswith("2026") else "Offsets"
        options[f"{name}ing{kind}"] = asked[name]
    return options | ({"failOnDataLoss": "false"} if asked.get("on_loss") == "skip" else {})


def planned(door: str, path: Path, topic: str = "orders", **asked: str) -> Callable[[], pa.Table]:
    """Plan a read by a door, and return what reads; the command, which does both at once, plans when it reads."""
    if door == "spark":
        options = {"path": str(path), "subscribe": topic} | spark_options(asked)
        if topic.startswith("^"):
            options["subscribePattern"] = f"{options.pop('subscribe').removeprefix('^')}.*"
        source = SegmentLogDataSource(options)
        reader = source.reader(source.schema())
        partitions = reader.partitions()
        return lambda: pa.Table.from_batches(
            [each for partition in partitions for each in reader.read(partition)], reader.target
        )
    if door == "python":
        lists = ("columns", "properties")
        given: dict[str, Any] = {name: text.split(",") if name in lists else text for name, text in asked.items()}
        opening = {"read_from": given.pop("read_from")} if "read_from" in given else {}
        if "check_crc" in given:
            given["check_crc"] = True
        return segmentlog.open(path, **opening).scan(topic, **given).to_arrow
    names = {"start": "from", "end": "to", "tags": "tag"}
    flags = [
        f"--{names.get(name, name.replace('_', '-'))}" + ("" if name == "check_crc" else f"={text}")
        for name, text in asked.items()
    ]
    return lambda: command_rows(run_command("cat", path, topic, "-o", "arrow", *flags))


def command_rows(ran: Ran) -> pa.Table:
    if ran.code == 2:
        (code,) = re.findall(r"error\[(\w+)\]: ", ran.err)
        raise next(each for each in vars(errors).values() if getattr(each, "condition", "") == code)(ran.err)
    return pa.ipc.open_stream(ran.out).read_all()


def read(door: str, path: Path, topic: str = "orders", **asked: str) -> pa.Table:
    return planned(door, path, topic, **asked)()


@every
def test_topics_by_pattern(door: str, path: Path) -> None:
    found = read(door, path, "^(orders|pay)", columns="topic")["topic"].to_pylist()
    assert Counter(found) == {"orders": 400, "payments": 400}


@every
def test_all_columns_and_those_of_a_read_that_names_none(door: str, path: Path) -> None:
    assert read(door, path, columns="*").schema == NATIVE_SCHEMA
    # Rows of the command can be put again, so they have the properties, and what is not in them.
    more = {"flag", "properties"} if door == "command" else set()
    assert set(read(door, path).column_names) == {*DEFAULT_COLUMNS, *more}


PLACE = "topic,queueId,queueOffset"


def places(table: pa.Table) -> list[tuple[str, int, int]]:
    return sorted(zip(*(table[name].to_pylist() for name in PLACE.split(",")), strict=True))


NO_LIMITS = "is `(earliest|latest)`, (before|after) which"


@every
@pytest.mark.parametrize(
    ("asked", "expected", "refused_by_spark"),
    [
        ({"sql": "KEYS = 'key-7' OR KEYS BETWEEN 7 AND 8"}, lambda row: row["keys"] == "key-7", None),
        ({"tags": "paid"}, lambda row: row["tags"] == "paid", None),
        ({"tags": "paid || none"}, lambda row: row["tags"] == "paid", None),
        ({"tags": "*"}, lambda _: True, None),
        (
            {"sql": "KEYS IN ('key-7', 'key-8')", "tags": "paid"},
            lambda row: row["keys"] == "key-8",
            "exclude each other",
        ),
        ({"start": at(100_000), "end": at(200_000)}, lambda row: 100 <= seconds(row) < 200, None),
        ({"start": at(1), "end": at(3000)}, lambda row: 0 < seconds(row) < 3, None),
        ({"start": at(5000), "end": at(5000)}, lambda _: False, None),
        ({"start": "latest"}, lambda _: False, NO_LIMITS),
        ({"end": "earliest"}, lambda _: False, NO_LIMITS),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_read_equals_a_filter_over_all_messages(
    door: str, path: Path, asked: dict[str, str], expected: Callable[[Row], bool], refused_by_spark: str | None
) -> None:
    if door == "spark" and refused_by_spark:
        with pytest.raises(ConfigError, match=refused_by_spark):
            read(door, path, **asked)
        return
    wanted = sorted(
        (row["topic"], row["queueId"], row["queueOffset"])
        for row in every_row(Snapshot.open(path))
        if row["topic"] == "orders" and expected(row)
    )
    assert places(read(door, path, columns=PLACE, **asked)) == wanted


@every
def test_property_columns_come_last(door: str, path: Path) -> None:
    found = read(door, path, columns="queueId,queueOffset", properties="KEYS,nobody")
    assert found.column_names == ["queueId", "queueOffset", "KEYS", "nobody"]
    assert all(row["KEYS"] == f"key-{4 * row['queueOffset'] + row['queueId']}" for row in found.to_pylist())
    assert found["nobody"].null_count == 400


@pytest.fixture
def copied(path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(path, tmp_path / "broker-a"))


@every
def test_a_body_that_its_crc_denies(door: str, copied: Path) -> None:
    segment = min((copied / "commitlog").iterdir())
    segment.write_bytes(segment.read_bytes().replace(b"message 7 ", b"massage 7 ", 1))
    assert read(door, copied, columns="queueOffset,body").num_rows == 400
    with pytest.raises(CorruptRecordError, match="CRC"):
        read(door, copied, columns="queueOffset,body", check_crc="true")


@every
def test_a_damaged_record(door: str, path: Path, copied: Path) -> None:
    message = segmentlog.open(copied).get(topic="orders", queue=1, offset=7)
    assert message is not None
    overwrite(copied, message.physical_offset + 4, bytes(4))  # its magic
    remedy = {"spark": "corruptRecord=skip", "python": "on_corrupt='skip'", "command": "--on-corrupt skip"}[door]
    with pytest.raises(CorruptRecordError, match=f"(?s)orders/1 offset 7.*{remedy} goes on"):
        read(door, copied)
    columns = f"{PLACE},storeTimestamp,body,tags"
    left = read(door, copied, columns=columns, on_corrupt="skip")
    assert sorted({*places(read(door, path, columns=PLACE))} - {*places(left)}) == [("orders", 1, 7)]
    held = read(door, copied, columns=columns, on_corrupt="null")
    assert [row for row in held.to_pylist() if row["storeTimestamp"] is None] == [
        {"topic": "orders", "queueId": 1, "queueOffset": 7, "storeTimestamp": None, "body": None, "tags": None}
    ]
    assert held.num_rows == 400


def delete_segment(path: Path) -> int:
    """Delete the first segment, as retention does; return the physical offset at which the log begins then."""
    first, second, *_ = sorted((path / "commitlog").iterdir())
    first.unlink()
    return int(second.name)


@pytest.mark.parametrize("door", ["spark", "python"])  # the command plans and reads at once
def test_messages_that_go_between_plan_and_read(door: str, copied: Path) -> None:
    columns = f"{PLACE},physicalOffset,body"
    whole = read(door, copied, columns=columns).to_pylist()
    fails, skips = (planned(door, copied, columns=columns, on_loss=each) for each in ("fail", "skip"))
    start = delete_segment(copied)
    remedy = {"spark": "failOnDataLoss=false", "python": "on_loss='skip'"}[door]
    with pytest.raises(DataLossError, match=f"messages.* orders/0.*{remedy} goes on"):
        fails()
    left = [row for row in whole if row["physicalOffset"] >= start]
    assert sorted(skips().to_pylist(), key=str) == sorted(left, key=str)
    assert 0 < len(left) < 400


@every
def test_a_start_that_retention_deleted(door: str, copied: Path) -> None:
    delete_segment(copied)
    first = Snapshot.open(copied).bounds(QueueKey("orders", 0)).min_offset
    start = '{"orders": {"0": 5, "1": 5, "2": 5, "3": 5}}'
    with pytest.raises(OffsetOutOfRangeError, match=f"offset 5 of orders/0, .*5 to {first - 1} are gone"):
        read(door, copied, start=start)
    assert min(read(door, copied, columns="queueOffset", start=start, on_loss="skip")["queueOffset"].to_pylist()) > 5


@every
def test_a_group_without_a_position_in_the_topic(door: str, path: Path) -> None:
    if door != "spark":  # Spark has an option for queues without a position
        assert read(door, path, "payments", start="group:etl").num_rows == 400
        return
    with pytest.raises(ConfigError, match="the consumer group `etl` has no position for payments/0"):
        read(door, path, "payments", start="group:etl")


@every
def test_confirmed_messages(door: str, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=1 << 20)) as writer:
        for number in range(5):
            writer.append(Outgoing(topic="orders", body=b"%d" % number, queue_id=number % 2))
    with pytest.raises(UnconfirmedError, match="no master publishes a confirmed offset in this store"):
        read(door, tmp_path / "store", read_from="confirmed")
    third = sorted(read(door, tmp_path / "store", columns="physicalOffset")["physicalOffset"].to_pylist())[2]
    with ConfirmationFile(LocalWritableFileSystem(), str(tmp_path / "store"), 2) as file:
        file.publish(third, 2)
        assert read(door, tmp_path / "store", read_from="confirmed").num_rows == 2


@pytest.mark.parametrize("door", ["python", "command"])
@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ("^refund", "no topic matches `.refund`.*topics are `orders`, `payments`"),
        ("order.*", r"no topic `order\.\*`.*A pattern begins with \^, such as `\^order`"),
        ("^(", r"`\^\(` is not a regular expression"),
    ],
)
def test_patterns_that_match_nothing(door: str, path: Path, topic: str, problem: str) -> None:
    with pytest.raises(ConfigError if topic == "^(" else UnknownTopicError, match=f"(?s){problem}"):
        DOORS[door](path, topic, (None, None))


@pytest.mark.parametrize("door", ["python", "command"])
def test_a_table_with_an_unknown_queue(door: str, path: Path) -> None:
    with pytest.raises(UnknownQueueError, match="names orders/4, which is not read"):
        DOORS[door](path, "orders", ('{"orders": {"4": 0}}', None))


@pytest.mark.parametrize("door", ["python", "command"])
def test_tables_limit_the_queues(door: str, path: Path) -> None:
    window = ('{"orders": {"1": "-10", "2": 50}}', f'{{"orders": {{"2": "{EARLY}", "3": 1}}}}')
    if door == "command":
        assert DOORS[door](path, "orders", window) == set()  # a start after the end reads nothing of the queue
    else:
        with pytest.raises(StartAfterEndError, match="orders/2 would be read from offset 50 to offset 2"):
            DOORS[door](path, "orders", window)
    later = (window[0], f'{{"orders": {{"2": "{LATE}", "3": 1}}}}')
    assert DOORS[door](path, "orders", later) == {"orders/2[50, 75)"}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_system_store(tmp_path_factory.mktemp("system") / "broker-a")


OF_SYSTEM = ["delayed", "dead-letters", "transactions", "trace"]


@pytest.mark.parametrize("door", ["spark", "command"])
@pytest.mark.parametrize("kind", ["topics", "queues", "groups", "lag", "segments", *OF_SYSTEM])
def test_metadata_is_that_of_python(door: str, kind: str, path: Path, system: Path) -> None:
    group = ["etl"] if kind == "lag" else []
    path = system if kind in OF_SYSTEM else path
    with segmentlog.open(path) as store:
        expected = getattr(store, kind.replace("-", "_"))(*group).to_arrow()
    if door == "command":
        found = command_rows(run_command(kind, path, *group, *(["--all"] if kind == "topics" else []), "-o", "arrow"))
    else:
        options = {"metadata": kind, "path": str(path)}
        options |= {} if kind in ["segments", *OF_SYSTEM] else {"includeSystemTopics": "true"}
        source = SegmentLogDataSource(options | ({"consumerGroup": "etl"} if group else {}))
        reader = source.reader(source.schema())
        found = pa.Table.from_batches([each for task in reader.partitions() for each in reader.read(task)])
    assert found == expected
    assert found.schema == SCHEMAS[kind]
    assert found.num_rows > 0
