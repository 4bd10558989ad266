import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from segmentlog.connector.errors import SchemaError
from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.write_options import WriteOptions, parse_write_options
from segmentlog.connector.options.write_table import Selector
from segmentlog.connector.read import KAFKA, NATIVE
from segmentlog.connector.write.schema import FIELDS, IGNORED, SinkColumns, plan_columns

TEXT = StringType()
HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BinaryType())]))


def options(**given: str) -> WriteOptions:
    return parse_write_options({"path": "/data/store"} | given, Mode.BATCH)


def plan(given: dict[str, DataType], **asked: str) -> SinkColumns:
    return plan_columns(StructType([StructField(name, kind) for name, kind in given.items()]), options(**asked))


def refusal(given: dict[str, DataType], **asked: str) -> str:
    with pytest.raises(SchemaError) as caught:
        plan(given, **asked)
    return str(caught.value)


def test_a_frame_of_our_own_source_goes_in_as_it_is() -> None:
    found = plan(dict(NATIVE))
    names = list(NATIVE)
    assert {field: names[at] for field, at in found.positions.items()} == {
        name: name
        for name in (
            "topic",
            "queueId",
            "body",
            "tags",
            "keys",
            "uniqKey",
            "bornTimestamp",
            "properties",
            "flag",
            "reconsumeTimes",
            "bornHost",
        )
    }
    assert found.selector is Selector.COLUMN


def test_a_frame_of_kafkas_source_goes_in_as_it_is() -> None:
    found = plan({name: kind for name, kind in KAFKA.items() if name != "brokerName"})
    names = list(KAFKA)
    assert {field: names[at] for field, at in found.positions.items()} == {
        "keys": "key",
        "body": "value",
        "topic": "topic",
        "queueId": "partition",
        "bornTimestamp": "timestamp",
        "properties": "headers",
    }


def test_each_column_of_the_source_is_written_or_ignored() -> None:
    written = {name for field in FIELDS for name in field.names}
    assert (set(NATIVE) | set(KAFKA)) - written == set(IGNORED)
    assert not written & set(IGNORED)


@pytest.mark.parametrize(
    "given",
    [
        {"BODY": TEXT},
        {"Value": BinaryType()},
        {"body": VarcharType(9), "tags": NullType()},
        {"body": TEXT, "keys": ArrayType(TEXT), "queueId": ShortType()},
        {"body": TEXT, "headers": MapType(TEXT, TEXT, valueContainsNull=False)},
        {"body": TEXT, "properties": HEADERS},
        {"body": TEXT, "properties": ArrayType(StructType([StructField("KEY", TEXT), StructField("VALUE", TEXT)]))},
    ],
)
def test_columns_with_accepted_names_and_types_pass(given: dict[str, DataType]) -> None:
    assert "body" in plan(given, topic="t")


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"topic": TEXT}, ["has no column `body`: its columns are `topic`", "to_json(struct(…))"]),
        ({"topic": TEXT, "bodi": TEXT}, ["a column `bodi`, which is not a part", "Did you mean `body`?"]),
        (
            {"topic": TEXT, "body": TEXT, "Zebra": TEXT},
            ["a column `Zebra`", "Drop it, as .drop('Zebra')", "`queueId` or `partition`"],
        ),
        ({"body": TEXT}, ["option `topic` is not set", ".option('topic', 'orders')"]),
        (
            {"topic": TEXT, "body": TEXT, "value": TEXT},
            ["columns `body` and `value`, which are two names of one thing: `body`"],
        ),
        ({"topic": TEXT, "body": TEXT, "Topic": TEXT}, ["the column `Topic` twice"]),
        (
            {"topic": TEXT, "body": LongType()},
            ["column `body` of the frame has type bigint", "It can be binary or string"],
        ),
        ({"topic": NullType(), "body": TEXT}, ["column `topic` of the frame has type void"]),
        ({"topic": TEXT, "body": TEXT, "queueId": LongType()}, ["It can be int", "col('queueId').cast('int')"]),
        (
            {"topic": TEXT, "body": TEXT, "timestamp": TimestampNTZType()},
            ["column `timestamp` of the frame has type timestamp_ntz", "it names no zone"],
        ),
        (
            {"topic": TEXT, "body": TEXT, "headers": ArrayType(TEXT)},
            ["column `headers`", "map<string,string> or array<struct<key:string,value:binary>>"],
        ),
        (
            {"topic": TEXT, "body": TEXT, "keys": ArrayType(IntegerType())},
            ["column `keys` of the frame has type array<int>"],
        ),
    ],
)
def test_wrong_columns_and_types_are_refused(given: dict[str, DataType], texts: list[str]) -> None:
    shown = refusal(given)
    for text in texts:
        assert text in shown


@pytest.mark.parametrize(
    ("columns", "asked", "selector"),
    [
        ((), "auto", Selector.ROUND_ROBIN),
        (("shardingKey",), "auto", Selector.SHARDING_KEY),
        (("shardingKey", "partition"), "auto", Selector.COLUMN),
        (("shardingKey", "queueId"), "shardingkey", Selector.SHARDING_KEY),
        (("queueId",), "ROUNDROBIN", Selector.ROUND_ROBIN),
        (("queueId",), "column", Selector.COLUMN),
    ],
)
def test_the_queue_selector_follows_the_option_and_the_columns(
    columns: tuple[str, ...], asked: str, selector: Selector
) -> None:
    kinds: dict[str, DataType] = {"shardingKey": TEXT, "queueId": IntegerType(), "partition": IntegerType()}
    given = {"body": TEXT} | {name: kinds[name] for name in columns}
    assert plan(given, topic="t", queueSelector=asked).selector is selector


@pytest.mark.parametrize(("asked", "column"), [("column", "queueId"), ("shardingKey", "shardingKey")])
def test_a_selector_needs_its_column(asked: str, column: str) -> None:
    text = f"option `queueSelector` is `{asked}`, and the frame has no column `{column}`"
    assert text in refusal({"body": TEXT}, topic="t", queueSelector=asked)


def test_a_time_may_be_a_timestamp() -> None:
    assert "bornTimestamp" in plan({"body": TEXT, "timestamp": TimestampType()}, topic="t")
