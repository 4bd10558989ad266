"""The listener of docs/streaming.md, executed as a reader would, on a running stream."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.store import MessageStore, Outgoing, StoreConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "streaming.md"
WAIT_SECONDS = 60


@pytest.mark.spark
def test_the_listener_prints_store_topic_and_lag(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker-a"
    with MessageStore.open(path, StoreConfig(segment_bytes=1 << 20, index=False)) as store:
        for number in range(10):
            store.append(Outgoing(topic="Orders", queue_id=number % 2, body=b"x"))
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(block.replace("addListener(", "addListener(listener := "), "streaming.md", "exec"), names)
    query = (
        spark.readStream.format("segmentlog")
        .options(subscribe="Orders", startingOffsets="earliest", maxOffsetsPerTrigger="6")
        .load(str(path))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(WAIT_SECONDS)
        wanted = {f"{path} Orders: {behind} messages behind" for behind in (4, 0)}
        printed = ""
        until = time.monotonic() + WAIT_SECONDS
        while not wanted <= set(printed.splitlines()) and time.monotonic() < until:
            printed += capsys.readouterr().out  # Spark calls listeners on a thread of its own
            time.sleep(0.05)
        assert wanted <= set(printed.splitlines())
    finally:
        spark.streams.removeListener(names["listener"])
