"""The reference of the columns, against what a read returns."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from segmentlog.connector.read import KAFKA, NATIVE

Read = Callable[..., pa.Table]
MODES = {"native": (NATIVE, {"tags", "keys", "uniqKey", "properties"}), "kafka": (KAFKA, {"key", "headers"})}
"""Columns of properties, and of what is made of them."""


@pytest.mark.parametrize("mode", MODES)
def test_exactly_columns_of_properties_are_null_in_a_store_without_damage(
    store: Callable[[str], Path], read: Read, mode: str
) -> None:
    columns, nullable = MODES[mode]
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    found = read(store("basic-5.3.3"), schema=schema, subscribePattern=".*", schemaMode=mode)
    assert {name for name in found.column_names if found.column(name).null_count} == nullable
