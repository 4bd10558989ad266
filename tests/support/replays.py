"""Replays of a small store by the job, and the comparison of source and target."""

import threading
from pathlib import Path
from typing import Any

import segmentlog
from segmentlog.jobs import replay
from segmentlog.jobs.report import Report
from segmentlog.query.source import StoreSource
from segmentlog.store import MessageStore, Outgoing

from .pipes import SINK
from .written_stores import SMALL

QUEUES, MESSAGES = 3, 120
PART_BYTES = 32 << 10
COLUMNS = ["topic", "queueId", "queueOffset", "body", "tags", "keys", "uniqKey", "bornTimestamp", "flag", "properties"]


def build_source(path: Path) -> Path:
    with MessageStore.open(path, SMALL) as store:
        for serial in range(MESSAGES):
            for queue_id in range(QUEUES):
                store.append(
                    Outgoing(
                        topic="orders" if queue_id else "payments",
                        queue_id=queue_id,
                        body=f"{queue_id}/{serial}".encode() * 3,
                        tags="paid" if serial % 2 else None,
                        keys=f"k{serial} all",
                        uniq_key=f"U{queue_id}.{serial}",
                        properties={"mine": "ü", "amount": str(serial)},
                        born_timestamp=1_700_000_000_000 + serial,
                        flag=serial,
                        reconsume_times=serial % 3,
                    )
                )
    return path


def replayed(
    spark: Any,
    path: Path,
    *,
    stop: threading.Event | None = None,
    target: str = "target",
    state: str = "state",
    **settings: Any,
) -> Report:
    folder = path.parent
    scan = segmentlog.open(path).scan(["orders", "payments"])
    chosen: dict[str, Any] = {"write": SINK, "part_bytes": PART_BYTES, **settings}
    return replay.run(
        spark,
        StoreSource.of(str(path)),
        scan.ranges,
        str(folder / target),
        str(folder / state),
        settings=replay.ReplaySettings(**chosen),
        asked={"store": str(path), "where": chosen.get("where")},
        stop=stop or threading.Event(),
    )


def rows(path: Path, topics: Any = ("orders", "payments")) -> list[dict[str, Any]]:
    found = segmentlog.open(path).scan(topics, columns=COLUMNS).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def check_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Compare rows, but for the order of properties and the checksum of the record, which holds its place."""

    def comparable(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"properties": {name: value for name, value in row["properties"] if name != "__CRC32#"}}

    assert [comparable(row) for row in found] == [comparable(row) for row in expected]
