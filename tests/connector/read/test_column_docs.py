"""The reference of the columns, against what a read returns."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from segmentlog.connector.read.column_docs import KAFKA_MEANINGS, NATIVE_MEANINGS, ColumnMeaning
from segmentlog.connector.read.schema import KAFKA, NATIVE

Read = Callable[..., pa.Table]
MODES = {"native": (NATIVE, NATIVE_MEANINGS), "kafka": (KAFKA, KAFKA_MEANINGS)}


@pytest.mark.parametrize("mode", MODES)
def test_every_column_has_a_line(mode: str) -> None:
    columns, meanings = MODES[mode]
    assert list(meanings) == list(columns)


@pytest.mark.parametrize("mode", MODES)
def test_exactly_the_documented_columns_are_null_in_a_store_without_damage(
    store: Callable[[str], Path], read: Read, mode: str
) -> None:
    columns, meanings = MODES[mode]
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    found = read(store("basic-5.3.3"), schema=schema, subscribePattern=".*", schemaMode=mode)
    null = {name for name in found.column_names if found.column(name).null_count}
    assert null == {name for name, meaning in meanings.items() if meaning.null}


def test_a_meaning_says_when_a_column_is_null() -> None:
    assert ColumnMeaning("x").null_text == "damaged record"
    assert ColumnMeaning("x", null="").null_text == "never"
    assert ColumnMeaning("x", null="no tags").null_text == "no tags; damaged record"
