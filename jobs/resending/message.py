"""Messages of a store as a producer sends them once more.

::

    %DLQ%billing   RETRY_TOPIC=orders RECONSUME_TIME=16 UNIQ_KEY=7F…01 TAGS=paid          as it is in the store
    orders         TAGS=paid SEGMENTLOG_ORIGIN=broker-a/%DLQ%billing/0/17 …              as it is sent
                             SEGMENTLOG_ORIGIN_UNIQ_KEY=7F…01 UNIQ_KEY=(of job and origin)

Properties by which a broker would delay, roll back or retry the message are dropped, as are those that a broker sets
itself. A message has an id of its own. With the original ``UNIQ_KEY``, a look-up would return two messages of one id,
and a consumer that drops known ids would drop a dead letter. The id follows from job and origin: copies that a job
sends twice, after a kill, have the same id. RocketMQ: ``MessageConst``, ``MessageClientIDSetter``,
``SendMessageRequestHeaderV2``.
"""

import calendar
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from segmentlog.store import QueueKey

ORIGIN: Final = "SEGMENTLOG_ORIGIN"
"""Property of a message that was sent by this job: ``broker/topic/queue id/queue offset`` in the store."""
ORIGIN_ID: Final = "SEGMENTLOG_ORIGIN_UNIQ_KEY"
"""Property that has the original ``UNIQ_KEY``."""
RETRY_TOPIC: Final = "RETRY_TOPIC"
DLQ_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
_UNIQ_KEY: Final = "UNIQ_KEY"
_RETRY: Final = "%RETRY%"
_COPIES: Final = (_RETRY, "%DLQ%")
"""Prefixes of topics that hold second copies of messages of other topics."""

DROPPED: Final = frozenset(
    {
        *("DELAY", "REAL_TOPIC", "REAL_QID"),  # delayed delivery; so is TIMER_*
        *("TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),  # transactions
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__"),
        *(RETRY_TOPIC, "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME"),  # retries and dead letters
        *("ORIGIN_MESSAGE_ID", DLQ_TOPIC, "DLQ_ORIGIN_MESSAGE_ID"),
        *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME"),  # pop consumers
        *("MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "ARRIVE_TIME", "__CRC32#"),  # set or consumed by the broker
        *("MIN_OFFSET", "MAX_OFFSET", "INNER_NUM", "INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "DUP_INFO"),
        *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "FORWARD_QUEUE_ID", "REDIRECT"),
        *(ORIGIN, ORIGIN_ID),  # of an earlier job
    }
)
"""Properties that are not sent; `is_dropped` has their prefix as well. docs/jobs.md lists them."""
_DROPPED_PREFIX: Final = "TIMER_"
_SENT_FLAGS: Final = 0x1 | 0x2 | 0x700
"""Bits of sysFlag that describe body and tags: compressed, several tags, kind of compression."""


def is_dropped(name: str) -> bool:
    """Tell whether a property is not sent."""
    return name in DROPPED or name.startswith(_DROPPED_PREFIX)


def target_topic(topic: str, retry_topic: str | None, dlq_topic: str | None, mapped: Mapping[str, str]) -> str | None:
    """Return the topic to which a message goes; None if a copy does not name its original topic."""
    if topic in mapped:
        return mapped[topic]
    return retry_topic or dlq_topic if topic.startswith(_COPIES) else topic


def is_retry_topic(topic: str) -> bool:
    """Tell whether a topic is that of one group: consumers of other groups do not read it."""
    return topic.startswith(_RETRY)


class Job(NamedTuple):
    """Identity of a job: random, and the time at which it began, in ms."""

    name: str
    started_ms: int


class Row(NamedTuple):
    """Message of the store, its body as stored."""

    offset: int
    body: bytes
    properties: list[tuple[str, str]]
    born_ms: int
    flag: int
    sys_flag: int


def origin_of(broker: str, key: QueueKey, offset: int) -> str:
    return f"{broker}/{key.topic}/{key.queue_id}/{offset}"


def unique_id(job: Job, origin: str) -> str:
    """Return the id of a message. It holds the time of the job, from which RocketMQ's look-ups by id begin."""
    digest = blake2b(f"{job.name}/{origin}".encode(), digest_size=12).digest()
    return (digest[:10] + _since_month(job.started_ms) + digest[10:]).hex().upper()


@lru_cache(1)
def _since_month(time_ms: int) -> bytes:
    """Return the ms since the month began, as an id holds them."""
    date = time.gmtime(time_ms // 1000)
    month_ms = calendar.timegm((date.tm_year, date.tm_mon, 1, 0, 0, 0)) * 1000
    # Clients count from the month's beginning in a zone of their own: 14 hours at most.
    return max(0, time_ms - month_ms - 14 * 3_600_000).to_bytes(4, "big")


def properties_sent(row: Row, origin: str, job: Job, source_topic: str, topic: str) -> dict[str, str]:
    """Return the properties of a message as it is sent to a topic, in their order."""
    found = {name: value for name, value in row.properties if not is_dropped(name)}
    if is_retry_topic(topic):  # a consumer shows such a message as one of this topic
        stored = dict(row.properties)
        found[RETRY_TOPIC] = stored.get(RETRY_TOPIC) or stored.get(DLQ_TOPIC) or source_topic
    former = found.pop(_UNIQ_KEY, None)
    found[ORIGIN] = origin
    if former is not None:
        found[ORIGIN_ID] = former
    found[_UNIQ_KEY] = unique_id(job, origin)
    return found


def encode_properties(properties: Iterable[tuple[str, str]]) -> str:
    """Return the text of properties in a record."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties)


def request_fields(row: Row, properties: str, topic: str, queue_id: int, group: str) -> dict[str, str]:
    """Return the fields of the request SEND_MESSAGE_V2, which have names of one letter."""
    return {
        "a": group,  # producerGroup
        "b": topic,
        "c": "TBW102",  # defaultTopic, by whose example a broker creates topics; the topic is known to exist
        "d": "4",  # defaultTopicQueueNums
        "e": str(queue_id),
        "f": str(row.sys_flag & _SENT_FLAGS),
        "g": str(row.born_ms),
        "h": str(row.flag),
        "i": properties,
        "j": "0",  # reconsumeTimes
        "k": "false",  # unitMode
        "m": "false",  # batch
    }
