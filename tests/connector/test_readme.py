from collections import Counter
from pathlib import Path

import pytest

import segmentlog
from support.documents import ROOT, Reader, code_blocks
from support.store_builder import Geometry, StoreBuilder, messages

JANUARY_31 = 1_769_817_600_000  # 2026-01-31T00:00:00Z
HOUR = 3_600_000


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_every_block_of_the_readme_has_its_stated_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")  # the first block sets them; back to what they are afterwards
        monkeypatch.delenv(name)
    store = tmp_path / "store"
    given = ("paid", "refunded", "sent")
    with StoreBuilder(store, geometry=Geometry(segment_bytes=1 << 20, queue_segment_entries=1000)) as builder:
        for topic, start in (("orders", JANUARY_31 - 12 * HOUR), ("payments", JANUARY_31 - 12 * HOUR)):
            builder.append(messages(48, topic=topic, tags=given, store_time_start=start, step_ms=HOUR))
        builder.append(messages(40, topic="orders", tags=given, first=48, store_time_start=JANUARY_31 + 48 * HOUR))
    blocks = (each for each in code_blocks(ROOT / "README.md") if each.language == "python" and not each.hidden)
    read, write, stream, without_spark = blocks
    reader = Reader(tmp_path, {})

    reader.execute(read)
    assert "storeTimestamp" in capsys.readouterr().out
    tags = reader.names["orders"].select("tags").toArrow()["tags"].to_pylist()
    assert Counter(tags) == {"paid": 26, "refunded": 25}  # of 36 and 40 messages

    for block in (write, stream, write):  # the second write is a repetition
        reader.execute(block)
    reader.names["query"].awaitTermination()
    with segmentlog.open(tmp_path / "other-store") as other:
        assert {topic: other.scan(topic).count() for topic in ("paid-orders", "orders")} == {
            "paid-orders": 26,
            "orders": 88,
        }

    reader.execute(without_spark)
    assert reader.names["paid"].count() == 26
    assert "key-7" in capsys.readouterr().out
    with segmentlog.open(tmp_path / "new-store") as written:
        assert written.scan("orders").to_arrow()["keys"].to_pylist() == ["order-17 customer-4"]
