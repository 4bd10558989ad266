import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.command.parser import Parser
from segmentlog.command.selection import Selection, asked_window, clock_of
from segmentlog.command.verbs.messages import add_cat
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.read import plan_partitions
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.query.selection import UnknownTopicError
from segmentlog.query.times import StartAfterEndError
from segmentlog.store import (
    DEFAULT_COLUMNS,
    NATIVE_SCHEMA,
    ConfigError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    ScanSpec,
    UnknownQueueError,
)
from support.commands import run_command

EARLY = "2026-01-31T00:00:10Z"
LATE = "2026-01-31T00:05:00Z"

Window = tuple[str | None, str | None]


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
    scan = Selection(options, ("body",)).scan(*asked_window(options, clock_of(options)))
    return set(map(str, scan.ranges))


DOORS = {"spark": spark, "python": python, "command": command}
every = pytest.mark.parametrize("door", DOORS)


def all_queues(start: int, stop: int) -> set[str]:
    return {f"orders/{queue}[{start}, {stop})" for queue in range(4)}


@every
@pytest.mark.parametrize(
    ("window", "ranges"),
    [
        ((None, None), all_queues(0, 100)),
        (("earliest", "latest"), all_queues(0, 100)),
        (("last:3", None), all_queues(97, 100)),
        (("last:300", "last:98"), all_queues(0, 2)),
        (("group:etl", None), all_queues(20, 100)),
        ((None, "group:etl"), all_queues(0, 20)),
        ((EARLY, LATE), {"orders/0[3, 75)", "orders/1[3, 75)", "orders/2[2, 75)", "orders/3[2, 75)"}),
        (('{"orders": {"0": 12, "2": "last:5"}}', None), {"orders/0[12, 100)", "orders/2[95, 100)"}),
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


def read(door: str, path: Path, topic: str = "orders", **asked: str) -> pa.Table:
    """Rows of messages by a door, with options by their names in Spark."""
    if door == "spark":
        options = {"path": str(path), "subscribe": topic} | asked
        if topic.startswith("^"):
            options["subscribePattern"] = f"{options.pop('subscribe').removeprefix('^')}.*"
        reader = SegmentLogDataSource(options).reader(SegmentLogDataSource(options).schema())
        batches = [each for partition in reader.partitions() for each in reader.read(partition)]
        return pa.Table.from_batches(batches)
    if door == "python":
        names = {"checkCrc": "check_crc", "columns": "columns"}
        with segmentlog.open(path) as store:
            given: dict[str, Any] = {names[name]: value == "true" or value.split(",") for name, value in asked.items()}
            return store.scan(topic, **given).to_arrow()
    flags = [f"--columns={asked['columns']}"] if "columns" in asked else []
    flags += ["--check-crc"] if asked.get("checkCrc") == "true" else []
    ran = run_command("cat", path, topic, "-o", "arrow", *flags)
    if ran.code == 2:
        raise CorruptRecordError(ran.err)
    return pa.ipc.open_stream(ran.out).read_all()


@every
def test_topics_by_pattern(door: str, path: Path) -> None:
    found = read(door, path, "^(orders|pay)", columns="topic")["topic"].to_pylist()
    assert Counter(found) == {"orders": 400, "payments": 400}


@every
def test_all_columns_and_those_of_a_read_that_names_none(door: str, path: Path) -> None:
    assert read(door, path, columns="*").column_names == NATIVE_SCHEMA.names
    # Rows of the command can be put again, so they have the properties, and what is not in them.
    more = {"flag", "properties"} if door == "command" else set()
    assert set(read(door, path).column_names) == {*DEFAULT_COLUMNS, *more}


@every
def test_a_body_that_its_crc_denies(door: str, path: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(path, tmp_path / "copy"))
    segment = min((path / "commitlog").iterdir())
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"message 7 ", b"massage 7 ", 1))
    assert read(door, path, columns="queueOffset,body").num_rows == 400
    with pytest.raises(CorruptRecordError, match="CRC"):
        read(door, path, columns="queueOffset,body", checkCrc="true")


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
