"""The README's Python, executed block after block as a reader would, on a store at its path."""

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.store import QueueKey
from segmentlog.store.groups import commit_offsets
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
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    writing = [block for block in blocks if '.format("segmentlog")' in block and "write" in block]
    (opening,) = (block for block in blocks if 'segmentlog.open("/data/new-store"' in block)
    (streaming,) = (block for block in blocks if 'readStream.format("segmentlog")' in block)
    writing.remove(streaming)
    (without_spark,) = (block for block in blocks if 'segmentlog.open("/data/store")' in block)
    blocks = [block for block in blocks if block not in (*writing, opening, streaming, without_spark)]
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    use, window, queues, projection, sql = (
        lambda block=block: run(block.replace("/data/store", str(store)), names) for block in blocks
    )

    use()
    assert "storeTimestamp" in capsys.readouterr().out
    assert names["orders"].count() == 88
    rows = window().collect()
    assert {(row["topic"], row["tags"]) for row in rows} == {
        (topic, tag) for topic in ("orders", "payments") for tag in ("paid", "refunded")
    }
    assert len(rows) == 32  # two of three tags, 24 hours, two topics
    assert sorted((row["queueId"], row["queueOffset"]) for row in queues().collect()) == [
        *((0, offset) for offset in range(12, 22)),
        *((3, offset) for offset in range(22)),
    ]
    assert sorted(tuple(row) for row in projection().collect()) == [("orders", queue, 22) for queue in range(4)]
    sql()
    assert spark.table("orders").columns == ["queueId", "queueOffset", "body", "properties"]
    spark.catalog.dropTempView("orders")

    commit_offsets(store, "etl", {QueueKey("orders", 0): 20})
    run(without_spark.replace("/data/store", str(store)), names)
    assert names["paid"].count() == 26  # a third of the 36 and 40 messages since then, rounded up each
    assert "key-7" in capsys.readouterr().out

    run(opening.replace("/data/new-store", str(tmp_path / "written")), {})
    written = spark.read.format("segmentlog").option("subscribePattern", ".*").load(str(tmp_path / "written"))
    assert sorted((row["topic"], row["queueOffset"], row["keys"]) for row in written.collect()) == [
        ("orders", 0, "order-17 customer-4"),
        *(("orders", offset, None) for offset in range(1, 5)),
        ("refunds", 0, None),
    ]

    run(streaming.replace("/data/", f"{tmp_path}/"), names)
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 88

    # In turn: a frame of the first block, then rows that come in.
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "one.json").write_text('{"body": "1", "topic": "new", "shardingKey": "a"}\n')
    assert len(writing) == 2
    for block in (*writing, writing[0]):
        run(block.replace("/data/", f"{tmp_path}/"), names)
        if "query" in names:
            names["query"].awaitTermination(120)
    paid = names["orders"].where("tags = 'paid'").count()
    other = spark.read.format("segmentlog").option("subscribePattern", ".*").load(str(tmp_path / "other-store"))
    assert {row["topic"]: row["count"] for row in other.groupBy("topic").count().collect()} == {
        "paid-orders": paid,
        "new": 1,
    }
