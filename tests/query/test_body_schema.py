import re

import pyarrow as pa
import pytest

from segmentlog.query.body_schema import parse_ddl
from segmentlog.store import ConfigError


def test_types() -> None:
    text = """`unit ``price` DOUBLE, a tinyint, b smallint, c int, d bigint, e float, f boolean, g binary, h date,
        i timestamp, j timestamp_ntz, k decimal, l decimal(38, 2), m array<array<string>>, n map<string, int>,
        o struct<x: int, y array<struct<z: long>>>, größe string"""
    inner = pa.struct([("z", pa.int64())])
    assert parse_ddl(text) == pa.schema(
        [
            ("unit `price", pa.float64()),
            ("a", pa.int8()),
            ("b", pa.int16()),
            ("c", pa.int32()),
            ("d", pa.int64()),
            ("e", pa.float32()),
            ("f", pa.bool_()),
            ("g", pa.binary()),
            ("h", pa.date32()),
            ("i", pa.timestamp("us", tz="UTC")),
            ("j", pa.timestamp("us")),
            ("k", pa.decimal128(10, 0)),
            ("l", pa.decimal128(38, 2)),
            ("m", pa.list_(pa.list_(pa.string()))),
            ("n", pa.map_(pa.string(), pa.int32())),
            ("o", pa.struct([("x", pa.int32()), ("y", pa.list_(inner))])),
            ("größe", pa.string()),
        ]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a name is missing at its start"),
        ("a", "a type, such as string"),
        ("a strin", "is missing after 'a'"),
        ("a int b int", "`,` is missing after 'a int'"),
        ("a int,", "a name is missing after 'a int,'"),
        ("a int; b int", "is missing after 'a int'"),
        ("a array<int", "`>` is missing after 'a array<int'"),
        ("a array int", "`<` is missing after 'a array'"),
        ("a map<int>", "`,` is missing after 'a map<int'"),
        ("a struct<b int", "`,` is missing after 'a struct<b int'"),
        ("a decimal(x)", "a number is missing after 'a decimal('"),
        ("a decimal(40,2)", "decimal(40,2) does not exist"),
        ("a decimal(4,5)", "decimal(4,5) does not exist"),
        ("a decimal(" + "9" * 5000 + ")", "`)` is missing"),
        ("a " + "array<" * 65 + "int", "types are nested more than 64 deep"),
        ("a " + "struct<b: " * 9999, "types are nested more than 64 deep"),
    ],
)
def test_errors_name_the_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        parse_ddl(text)
