import base64
import hashlib
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.spark import last_commit
from support import oracle, releases
from support.sink_tasks import SMALL, run_task

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=1)]

TEXT = StringType()
SCHEMA = StructType(
    [
        StructField("body", BinaryType()),
        StructField("topic", TEXT),
        StructField("shardingKey", TEXT),
        StructField("tags", TEXT),
        StructField("keys", ArrayType(TEXT)),
        StructField("headers", MapType(TEXT, TEXT)),
        StructField("bornTimestamp", TimestampType()),
        StructField("flag", IntegerType()),
    ]
)
BROKER = {"mappedFileSizeCommitLog": 64 << 10, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100}
BROKER |= {"maxIndexNum": 400}
BORN = datetime(2026, 1, 31, tzinfo=UTC)
ROWS, PARTITIONS, BATCHES = 60, 2, 3


def rows(batch: int, partition: int) -> list[dict[str, Any]]:
    first = (batch * PARTITIONS + partition) * ROWS
    return [
        {
            "body": b"%d-" % number * (number % 50),
            "topic": f"Topic{number % 2}",
            "shardingKey": f"键{number % 5}" if number % 7 else None,
            "tags": f"Tag{number % 3}" if number % 4 else None,
            "keys": [f"k-{number}", f"shared-{number % 20}"] if number % 6 else None,
            "headers": [("user", f"größe-{number}")] if number % 5 else None,
            "bornTimestamp": BORN + timedelta(seconds=number),
            "flag": number % 9,
        }
        for number in range(first, first + ROWS)
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sink") / "store"
    kinds = to_arrow_schema(SCHEMA, timezone="UTC")
    given = SMALL | {"path": str(path), "defaultQueueNums": "4", "compressMsgBodyOverHowmuch": "150"}
    for batch in (*range(BATCHES), BATCHES - 1):
        writer = SegmentLogDataSource(given).streamWriter(SCHEMA, False)
        messages = [
            run_task(writer, pa.Table.from_pylist(rows(batch, partition), kinds).to_batches(17), partition, "q", batch)
            for partition in range(PARTITIONS)
        ]
        SegmentLogDataSource(given).streamWriter(schema=SCHEMA, overwrite=False).commit(messages, batch)
    committed = last_commit(path, "q")
    assert committed is not None
    assert (committed.version, committed.rows) == (BATCHES - 1, ROWS * PARTITIONS)
    return path


@pytest.fixture(params=releases.STORES)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _body(line: oracle.Line) -> bytes | str:
    """Return the body as consumers see it, or its hash if it is long."""
    name, digest = ("plain", "plainSha256") if "plain" in line or "plainSha256" in line else ("body", "bodySha256")
    return base64.b64decode(line[name]) if name in line else str(line[digest])


def test_rocketmq_reads_every_row(store: Path, version: str) -> None:
    lines = oracle.dump(store, BROKER, version)
    assert not [line for line in lines if "error" in line]
    found = [line for line in lines if line["type"] == "message"]
    wanted = [row for batch in range(BATCHES) for partition in range(PARTITIONS) for row in rows(batch, partition)]
    assert len(found) == len(wanted) == ROWS * PARTITIONS * BATCHES
    for line, row in zip(sorted(found, key=lambda line: line["phyOffset"]), wanted, strict=True):
        properties = line["properties"]
        assert _body(line) in (row["body"], hashlib.sha256(row["body"]).hexdigest())
        assert ("plain" in line or "plainSha256" in line) == (len(row["body"]) >= 150)
        assert (line["topic"], line["tags"], line["flag"]) == (row["topic"], row["tags"], row["flag"])
        assert line["keys"] == (" ".join(row["keys"]) if row["keys"] else None)
        assert line["bornTimestamp"] == int(row["bornTimestamp"].timestamp() * 1000)
        assert properties.get("__SHARDINGKEY") == row["shardingKey"]
        assert [properties.get("user")] == [value for _, value in row["headers"] or [("user", None)]]
        assert len(properties["UNIQ_KEY"]) == 32
    queues: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in sorted(found, key=lambda line: line["phyOffset"]):
        queues[line["topic"], line["queueId"]].append(line["queueOffset"])
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
