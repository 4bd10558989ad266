import pyarrow as pa
import pytest

from segmentlog.query.rows import table_of

SCHEMA = pa.schema([("topic", pa.string()), ("offset", pa.int64())])


def test_a_table_has_the_columns_of_its_schema_even_without_rows() -> None:
    assert table_of([("orders", 3), ("refunds", None)], SCHEMA).to_pylist() == [
        {"topic": "orders", "offset": 3},
        {"topic": "refunds", "offset": None},
    ]
    assert table_of([], SCHEMA).schema == SCHEMA
    with pytest.raises(ValueError, match="shorter"):
        table_of([("orders",)], SCHEMA)
