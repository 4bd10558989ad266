"""Reading whole stores, and saying of a row what ``expected.jsonl`` says of a message."""

import base64
import hashlib
import ipaddress
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from segmentlog.store import NATIVE_SCHEMA, OnCorrupt, QueueKey, QueueRange, ScanSpec, Snapshot

Row = dict[str, Any]

ALL_COLUMNS = tuple(NATIVE_SCHEMA.names)


def whole_queues(snapshot: Snapshot) -> list[QueueRange]:
    return [
        QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
        for topic in snapshot.topics()
        for bounds in snapshot.queues(topic)
    ]


def read(
    snapshot: Snapshot, ranges: list[QueueRange] | None = None, *, max_bytes: int = 100_000, **spec: Any
) -> Iterator[Row]:
    """Rows of some queue ranges, or of the whole store, in plans of small tasks."""
    options = {"columns": ALL_COLUMNS, "check_crc": True, **spec}
    for task in snapshot.plan(whole_queues(snapshot) if ranges is None else ranges, max_bytes=max_bytes):
        rows = 0
        for batch in snapshot.scan(task, ScanSpec(**options)):
            batch.validate(full=True)
            assert batch.num_rows > 0
            rows += batch.num_rows
            yield from batch.to_pylist(maps_as_pydicts="strict")
        if options.get("on_corrupt") is OnCorrupt.NULL and "predicate" not in options:
            assert rows == task.rows


def by_queue(rows: Iterator[Row]) -> dict[QueueKey, list[Row]]:
    queues: dict[QueueKey, list[Row]] = {}
    for row in rows:
        queues.setdefault(QueueKey(row["topic"], row["queueId"]), []).append(row)
    return queues


def is_damaged(row: Row) -> bool:
    """Return whether a row stands for a record that could not be read (``corruptRecord=null``)."""
    return row["storeTimestamp"] is None


def millis(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def described(row: Row) -> Row:
    """A row in the words of ``expected.jsonl``; a compressed body as it is when inflated."""
    renamed = {
        "cqPhyOffset": row["physicalOffset"],
        "cqSize": row["storeSize"],
        "cqTagsCode": row["tagsCode"],
        "phyOffset": row["physicalOffset"],
        "bodyCRC": row["bodyCrc"],
        "bornTimestamp": millis(row["bornTimestamp"]),
        "storeTimestamp": millis(row["storeTimestamp"]),
    }
    return {name: row[name] for name in (*_SAME, "bornHost", "storeHost", "uniqKey") if name not in renamed} | {
        **renamed,
        "properties": row["properties"] or {},
        "bodySha256": hashlib.sha256(bytes(row["body"])).hexdigest(),
    }


def expected_row(message: Mapping[str, Any]) -> Row:
    """A message line of ``expected.jsonl`` in the same words."""
    plain = "plainSize" in message
    text, digest = ("plain", "plainSha256") if plain else ("body", "bodySha256")
    body_digest = message.get(digest)
    if body_digest is None:
        body_digest = hashlib.sha256(base64.b64decode(message[text])).hexdigest()
    return {name: message[name] for name in _SAME} | {
        "bornHost": _host(message["bornHost"], message["bornHostPort"]),
        "storeHost": _host(message["storeHost"], message["storeHostPort"]),
        "uniqKey": (message["properties"] or {}).get("UNIQ_KEY"),
        "properties": message["properties"] or {},
        "bodySha256": body_digest,
    }


_SAME = (
    *("cqPhyOffset", "cqSize", "cqTagsCode", "topic", "queueId", "queueOffset", "phyOffset", "storeSize", "bodyCRC"),
    *("flag", "sysFlag", "bornTimestamp", "storeTimestamp", "msgId", "reconsumeTimes", "preparedTransactionOffset"),
    *("tags", "keys"),
)


def _host(address: str, port: int) -> str:
    parsed = ipaddress.ip_address(address)
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"
