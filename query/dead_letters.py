"""Dead letters: messages that the consumers of a group refused for good, counted by group and original topic.

::

    %DLQ%billing   RETRY_TOPIC=orders   reconsumeTimes 17        refused, and 16 retries refused as well: exhausted
                   RETRY_TOPIC=orders   reconsumeTimes 1         refused once: the consumer gave up, or limits retries
                      │
                      ▼
    billing  orders  messages 2  exhausted 1     segmentlog resend STORE '%DLQ%billing' --broker HOST:10911 …

RocketMQ: ``AbstractSendMessageProcessor.consumerSendMsgBack``, ``SendMessageProcessor.handleRetryAndDLQ``.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import Snapshot

from .metadata import SCHEMAS, best
from .system_frames import SystemWindow, messages_of
from .times import iso

RETRY_TOPIC: Final = "RETRY_TOPIC"
DLQ_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""Property with the group of a pop consumer; brokers of 5.5 set it in messages that they deliver again."""
_RETRY: Final = "%RETRY%"
_DLQ: Final = "%DLQ%"
_COPIES: Final = (_RETRY, _DLQ)
"""Prefixes of topics that hold second copies of messages of other topics."""
_RETRIES: Final = 16
"""RocketMQ's default of ``maxReconsumeTimes`` and ``retryMaxTimes``."""
_PROPERTIES: Final = (RETRY_TOPIC, DLQ_TOPIC, ORIGIN_GROUP)
_COUNTED: Final = ["bornTimestamp", "storeTimestamp", "reconsumeTimes"]


def is_retry_topic(topic: str) -> bool:
    """Return whether a topic has the retries of one group."""
    return topic.startswith(_RETRY)


def original_topic(topic: str, named: str | None, group: str | None) -> str | None:
    """Return the original topic of a message of a topic; the names and the group are those in its properties.

    ::

        %RETRY%GROUP+orders, %RETRY%GROUP_orders        where pop consumers get messages again, and what they name

    RocketMQ: ``KeyBuilder.parseNormalTopic``, ``PopReviveService``. No group and no topic has a ``+`` in its name.
    """
    if not topic.startswith(_COPIES):
        return topic
    found = named or topic
    if not is_retry_topic(found):
        return named
    if (parts := found.split("+"))[1:]:
        return parts[1] if len(parts) == 2 and parts[1] else named
    for each in (topic.removeprefix(_DLQ) if topic.startswith(_DLQ) else None, group):
        if each and len(found) > len(front := f"{_RETRY}{each}_") and found.startswith(front):
            return found.removeprefix(front)
    return named


@dataclass(slots=True)
class _Letters:
    """Dead letters of one group and original topic."""

    messages: int = 0
    exhausted: int = 0
    retries: int = 0
    first_born: Any = None
    first_stored: Any = None
    last_stored: Any = None
    named: set[tuple[str, str] | None] = field(default_factory=set)
    """Property and value that name the topic; None for letters without one."""


def dead_letter_batches(store: Snapshot, window: SystemWindow) -> Iterator[pa.RecordBatch]:
    """Yield the dead letters of each group as one batch, with a row per original topic.

    ``window.topics`` are original topics. The column ``resend`` has the command that sends the letters of a row again.
    """
    for topic in sorted(each for each in store.topics() if each.startswith(_DLQ)):
        found: dict[str | None, _Letters] = {}
        for batch in messages_of(store, topic, window, columns=tuple(_COUNTED), properties=_PROPERTIES):
            _count(batch, topic, found)
        wanted = {
            name: letters
            for name, letters in found.items()
            if window.topics is None or (name is not None and window.topics.wants(name))
        }
        if wanted:
            rows = [
                {
                    "brokerName": store.broker_name,
                    "group": topic.removeprefix(_DLQ),
                    "topic": name,
                    "messages": letters.messages,
                    "exhausted": letters.exhausted,
                    "retries": letters.retries,
                    "firstBornTimestamp": letters.first_born,
                    "firstStoreTimestamp": letters.first_stored,
                    "lastStoreTimestamp": letters.last_stored,
                    "resend": _command(store.path, topic, name, letters, window, is_alone=len(found) == 1),
                }
                for name, letters in sorted(wanted.items(), key=lambda each: each[0] or "")
            ]
            yield pa.RecordBatch.from_pylist(rows, SCHEMAS["dead-letters"])


def _count(batch: pa.RecordBatch, topic: str, found: dict[str | None, _Letters]) -> None:
    table = pa.Table.from_batches([batch])
    retries = pc.max_element_wise(pc.subtract(table["reconsumeTimes"], 1), 0)
    table = table.append_column("retries", retries).append_column(
        "exhausted", pc.greater_equal(retries, _RETRIES).cast(pa.int64())
    )
    groups = table.group_by(list(_PROPERTIES)).aggregate(
        [
            *(("retries", "count"), ("retries", "max"), ("exhausted", "sum")),
            *(("bornTimestamp", "min"), ("storeTimestamp", "min"), ("storeTimestamp", "max")),
        ]
    )
    for row in groups.to_pylist():
        named = row[RETRY_TOPIC] or row[DLQ_TOPIC]
        letters = found.setdefault(original_topic(topic, named, row[ORIGIN_GROUP]), _Letters())
        letters.messages += row["retries_count"]
        letters.exhausted += row["exhausted_sum"]
        letters.retries = max(letters.retries, row["retries_max"])
        letters.first_born = best(min, (letters.first_born, row["bornTimestamp_min"]))
        letters.first_stored = best(min, (letters.first_stored, row["storeTimestamp_min"]))
        letters.last_stored = best(max, (letters.last_stored, row["storeTimestamp_max"]))
        name = RETRY_TOPIC if row[RETRY_TOPIC] else DLQ_TOPIC
        letters.named.add((name, named) if named else None)


def _command(
    path: str, topic: str, name: str | None, letters: _Letters, window: SystemWindow, *, is_alone: bool
) -> str:
    """Return the command that sends letters again; HOST and FILE are for the user to replace."""
    words = ["segmentlog", "resend", path, topic]
    if not is_alone:  # the topic has letters of other original topics
        words += ["--sql", " OR ".join(sorted(map(_condition, letters.named)))]
    for flag, ms in (("--from", window.start_ms), ("--to", window.stop_ms)):
        words += [] if ms is None else [flag, iso(ms)]
    if name is None:
        words += ["--map-topic", f"{topic}=TOPIC"]
    return shlex.join([*words, "--broker", "HOST:10911", "--state", "FILE"])


def _condition(named: tuple[str, str] | None) -> str:
    if named is None:
        return f"({RETRY_TOPIC} IS NULL AND {DLQ_TOPIC} IS NULL)"
    name, value = named
    quoted = value.replace("'", "''")
    return f"{name} = '{quoted}'"
