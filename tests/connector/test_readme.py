"""The README's Python, executed block after block as a reader would, on a store at its path."""

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.store_builder import Geometry, StoreBuilder, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"
JANUARY_31 = 1_769_817_600_000  # 2026-01-31T00:00:00Z
HOUR = 3_600_000


def run(block: str, names: dict[str, Any]) -> Any:
    """Execute a block, and return the value of its last expression."""
    *statements, last = ast.parse(block).body
    if not isinstance(last, ast.Expr):
        statements.append(last)
    exec(compile(ast.Module(statements, []), "README.md", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "README.md", "eval"), names)


@pytest.mark.spark
def test_every_block_of_the_readme_has_its_stated_result(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")  # the first block sets them; back to what they are afterwards
        monkeypatch.delenv(name)
    store = tmp_path / "store"
    tags = ("paid", "refunded", "sent")
    with StoreBuilder(store, geometry=Geometry(segment_bytes=1 << 20, queue_segment_entries=1000)) as builder:
        for topic, start in (("orders", JANUARY_31 - 12 * HOUR), ("payments", JANUARY_31 - 12 * HOUR)):
            builder.append(messages(48, topic=topic, tags=tags, store_time_start=start, step_ms=HOUR))
        builder.append(messages(40, topic="orders", tags=tags, first=48, store_time_start=JANUARY_31 + 48 * HOUR))
    read, write, stream, without_spark = (
        block.replace("/data/", f"{tmp_path}/")
        for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    )
    names: dict[str, Any] = {}

    run(read, names)
    assert "storeTimestamp" in capsys.readouterr().out
    counts = names["orders"].groupBy("tags").count().collect()
    assert {row["tags"]: row["count"] for row in counts} == {"paid": 26, "refunded": 25}  # of 36 and 40 messages

    for block in (write, stream, write):  # the second write is a repetition
        run(block, names)
    names["query"].awaitTermination(120)
    other = spark.read.format("segmentlog").option("subscribePattern", ".*").load(str(tmp_path / "other-store"))
    assert {row["topic"]: row["count"] for row in other.groupBy("topic").count().collect()} == {
        "paid-orders": 26,
        "orders": 88,
    }

    run(without_spark, names)
    assert names["paid"].count() == 26
    assert "key-7" in capsys.readouterr().out
    written = spark.read.format("segmentlog").option("subscribePattern", ".*").load(str(tmp_path / "new-store"))
    assert [(row["topic"], row["keys"]) for row in written.collect()] == [("orders", "order-17 customer-4")]
