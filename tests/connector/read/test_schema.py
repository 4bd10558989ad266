import pickle

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType, TimestampNTZType

from segmentlog.connector.errors import ConflictingOptionsError, SchemaError
from segmentlog.connector.options.read_options import ReadOptions, parse_read_options
from segmentlog.connector.read.schema import NATIVE, check_schema, project, spark_schema
from segmentlog.store import NATIVE_SCHEMA

DEFAULT = ["topic", "queueId", "queueOffset", "body", "tags", "keys", "uniqKey", "bornTimestamp", "storeTimestamp"]
KAFKA_DEFAULT = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def options(**given: str) -> ReadOptions:
    return parse_read_options({"path": "/data/store", "topic": "t"} | given)


def struct(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])  # type: ignore[arg-type]


def test_every_native_column_is_the_stores_own() -> None:
    assert to_arrow_schema(struct(**NATIVE), timezone="UTC").equals(NATIVE_SCHEMA)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, DEFAULT),
        ({"includeProperties": "true"}, [*DEFAULT, "properties"]),
        ({"propertyColumns": "color,size"}, [*DEFAULT, "color", "size"]),
        ({"includeProperties": "true", "propertyColumns": "color"}, [*DEFAULT, "properties", "color"]),
        ({"columns": "segment,topic"}, ["segment", "topic"]),
        ({"columns": "color,topic", "propertyColumns": "color,size"}, ["color", "topic", "size"]),
        ({"columns": "properties,topic", "includeHeaders": "true"}, ["properties", "topic"]),
        ({"schemaMode": "kafka"}, KAFKA_DEFAULT),
        ({"schemaMode": "kafka", "includeHeaders": "true"}, [*KAFKA_DEFAULT, "headers"]),
        ({"schemaMode": "kafka", "columns": "offset,value"}, ["offset", "value"]),
    ],
)
def test_columns(given: dict[str, str], names: list[str]) -> None:
    assert spark_schema(options(**given)).names == names


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_several_stores_are_told_apart(mode: str) -> None:
    several = parse_read_options({"paths": "/a,/b", "topic": "t", "schemaMode": mode})
    assert spark_schema(several).names[-1] == "brokerName"


def test_kafkas_types_are_kafkas() -> None:
    made = spark_schema(options(schemaMode="kafka", includeHeaders="true"))
    assert made.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in made.fields)


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_a_column_that_there_is_not(mode: str) -> None:
    asked = options(schemaMode=mode, columns="topic,tag")
    with pytest.raises(SchemaError) as caught:
        spark_schema(asked)
    text = str(caught.value)
    assert text.startswith("[SEGMENTLOG_BAD_SCHEMA] column `tag` does not exist: option `columns` asks for it.")
    assert ("Did you mean `tags`?" in text) == (mode == "native")
    assert ("`segment`" in text) == (mode == "native")
    assert ("`timestampType`" in text) == (mode == "kafka")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (struct(bodi=StringType()), r"column `bodi` does not exist: the schema asks for it\. Did you mean `body`\?"),
        (struct(TOPIC=StringType()), r"column `TOPIC` does not exist: the schema asks for it\. Did you mean `topic`\?"),
        (struct(offset=LongType()), r"column `offset` does not exist"),
        (
            struct(queueId=LongType()),
            r"column `queueId` of the schema has type bigint\. Its type is int: declare that, and cast",
        ),
        (struct(storeTimestamp=TimestampNTZType()), r"has type timestamp_ntz\. Its type is timestamp"),
        (struct(properties=MapType(StringType(), IntegerType())), r"Its type is map<string,string>"),
        (struct(topic=StringType("UTF8_LCASE")), r"has type string collate UTF8_LCASE\. Its type is string"),
        (struct(properties=MapType(StringType(), StringType(), False)), r"`properties`, or a part of it, as not null"),
        (StructType([StructField("topic", StringType(), nullable=False)]), r"`topic`, or a part of it, as not null"),
        (StructType([StructField("topic", StringType())] * 2), r"columns `topic` and `topic` have the same name"),
        (StructType([]), r"the schema has no column"),
    ],
)
def test_a_schema_that_does_not_fit(asked: StructType, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        check_schema(asked, options())


@pytest.mark.parametrize(
    "given",
    [{}, {"includeProperties": "true"}, {"columns": "body,topic"}, {"schemaMode": "kafka", "propertyColumns": "x"}],
)
def test_our_own_schema_fits(given: dict[str, str]) -> None:
    check_schema(spark_schema(options(**given)), options(**given))


def test_a_user_schema_and_option_columns_exclude_each_other() -> None:
    with pytest.raises(ConflictingOptionsError, match="the schema and option `columns` ask for different columns"):
        check_schema(struct(topic=StringType()), options(columns="topic,body"))


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_a_property_with_the_name_of_a_column(mode: str) -> None:
    with pytest.raises(SchemaError, match="`propertyColumns` names `topic`, which is a column already"):
        spark_schema(options(propertyColumns="topic", schemaMode=mode))


def test_names_that_differ_in_case_only() -> None:
    with pytest.raises(SchemaError, match="columns `tags` and `TAGS` have the same name for Spark"):
        spark_schema(options(propertyColumns="TAGS"))
    assert spark_schema(options(propertyColumns="TAGS", columns="topic")).names == ["topic", "TAGS"]


def batch_for(options: ReadOptions, schema: StructType) -> pa.RecordBatch:
    """Three rows of the store: the second of nulls, for a damaged record."""
    projection = project(schema, options)
    ts = pa.timestamp("us", tz="UTC")
    values = {
        "topic": pa.array(["t", "t", "t"]),
        "queueId": pa.array([0, 1, 2], pa.int32()),
        "queueOffset": pa.array([7, 8, 9], pa.int64()),
        "body": pa.array([b"a", None, b""], pa.binary()),
        "tags": pa.array(["A", None, None]),
        "keys": pa.array(["k1 k2", None, "ü"]),
        "storeTimestamp": pa.array([1_000, None, 2_000], ts),
        "properties": pa.array([[("a", "1"), ("b", "é")], None, []], pa.map_(pa.string(), pa.string())),
        "brokerName": pa.array(["b"] * 3),
        "color": pa.array(["red", None, None]),
    }
    names = [*projection.scan_columns, *projection.property_columns]
    return pa.RecordBatch.from_arrays([values[name] for name in names], names=names)


@pytest.mark.parametrize("rows", [slice(0, 3), slice(1, 3), slice(2, 3), slice(0, 0)])
def test_kafkas_columns_are_made_of_ours(rows: slice) -> None:
    asked = options(schemaMode="kafka", includeHeaders="true", propertyColumns="color")
    schema = spark_schema(asked)
    projection = project(schema, asked)
    batch = batch_for(asked, schema).slice(rows.start, rows.stop - rows.start)
    found = projection.convert(batch)
    found.validate(full=True)
    assert found.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    wanted = {
        "key": [b"k1 k2", None, "ü".encode()],
        "value": [b"a", None, b""],
        "topic": ["t"] * 3,
        "partition": [0, 1, 2],
        "offset": [7, 8, 9],
        "timestampType": [1, 1, 1],
        "headers": [[{"key": "a", "value": b"1"}, {"key": "b", "value": "é".encode()}], None, []],
        "color": ["red", None, None],
    }
    assert found.drop_columns(["timestamp"]).to_pydict() == {name: column[rows] for name, column in wanted.items()}
    assert found.column("timestamp").equals(batch.column("storeTimestamp"))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"propertyColumns": "color"}, ["color", "topic"]),
        ({"propertyColumns": "color"}, ["topic", "color"]),
        ({"propertyColumns": "color"}, ["color"]),
        ({}, ["properties", "queueOffset", "topic"]),
        ({"schemaMode": "kafka"}, ["timestampType"]),
        ({"schemaMode": "kafka"}, ["headers", "key"]),
        ({"schemaMode": "kafka", "propertyColumns": "color"}, ["offset", "color", "timestampType", "brokerName"]),
    ],
)
def test_a_projection_returns_the_columns_in_schema_order(given: dict[str, str], names: list[str]) -> None:
    asked = options(**given)
    every = spark_schema(options(**given | {"includeProperties": "true", "columns": ",".join(names)}))
    schema = StructType([every[name] for name in names])
    check_schema(schema, asked)
    projection = pickle.loads(pickle.dumps(project(schema, asked)))
    found = projection.convert(batch_for(asked, schema))
    assert found.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    assert found.num_rows == 3


def test_only_requested_columns_are_scanned() -> None:
    projection = project(struct(queueOffset=LongType(), topic=StringType()), options(propertyColumns="color"))
    assert projection.scan_columns == ("queueOffset", "topic")
    assert projection.property_columns == ()
    kafka = options(schemaMode="kafka")
    assert project(struct(timestampType=IntegerType()), kafka).scan_columns == ("queueOffset",)


def test_a_batch_that_fits_is_passed_on_as_it_is() -> None:
    schema = struct(topic=StringType(), queueOffset=LongType())
    batch = batch_for(options(), schema)
    assert project(schema, options()).convert(batch) is batch
