"""The options of the sink: topic, exactly-once commits, queues, and how the store is written.

To add an option: a field of `SinkOptions`, and ``scripts/pages.py``.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from segmentlog.store import ConfigError, Flush, OnChangedReplay
from segmentlog.store.sink import DEFAULT_QUEUES, topic_problem

from . import values
from .option import COUNT, SIZE, STRICT_OPTIONS, Mode, OptionTable, option, switch

_QUEUES_MAX: Final = 1 << 16
_FLUSH = {"sync": Flush.SYNC, "async": Flush.ASYNC}


class OnNull(Enum):
    """Treatment of a row without a topic or a body."""

    FAIL = "fail"
    SKIP = "skip"
    EMPTY = "empty"
    """Bodies only: the message has a body of no bytes."""


class Selector(Enum):
    """The rule that chooses the queue of a row."""

    AUTO = "auto"
    COLUMN = "column"
    SHARDING_KEY = "shardingKey"
    ROUND_ROBIN = "roundrobin"


def _name(name: str, raw: str) -> str:
    """Take a name exactly as it is; one with white space around it is more likely a mistake than a name."""
    if not raw or raw != raw.strip():
        raise ConfigError(
            f"option `{name}` is empty, or has white space before or after it", fix="Write the name without it"
        )
    return raw


def _topic(name: str, raw: str) -> str:
    """Take a topic that RocketMQ would create."""
    problem = topic_problem(_name(name, raw))
    if problem is not None:
        raise ConfigError(f"option `{name}` cannot be a topic: {problem}", fix="Use another name")
    return raw


def _version(name: str, raw: str) -> int:
    """Read a whole number that the ledger can hold."""
    if not re.fullmatch(r"\+?\d{1,19}", raw.strip(), re.ASCII) or int(raw) > 1 << 62:
        wanted = f"a whole number from 0 to {1 << 62}, that grows from one write to the next"
        raise values.bad_value(name, raw, wanted)
    return int(raw)


def _seconds(name: str, raw: str) -> float:
    """Read a duration as seconds."""
    return values.duration_ms(name, raw) / 1000


def _queues(name: str, raw: str) -> int:
    count = values.positive(name, raw)
    if count > _QUEUES_MAX:
        raise ConfigError(f"option `{name}` is `{count}`", fix=f"Use a number from 1 to {_QUEUES_MAX}")
    return count


def _int32(parse: Callable[[str, str], int], least: int = 1) -> Callable[[str, str], int]:
    """Make a parser of numbers that the store keeps in 32 bits."""

    def parse_int32(name: str, raw: str) -> int:
        number = parse(name, raw)
        if number >= 1 << 31:
            raise ConfigError(f"option `{name}` is {number}, the store keeps it in 32 bits", fix="Use less than 2g")
        if number < least:
            raise ConfigError(f"option `{name}` is {number}", fix=f"Use {least} or more")
        return number

    return parse_int32


def _host(name: str, raw: str) -> str:
    """Take an address and a port; IPv6 as ``[ip]:port``."""
    address, _, port = raw.strip().rpartition(":")
    try:
        ipaddress.ip_address(address.strip("[]"))
        known = re.fullmatch(r"\d{1,5}", port, re.ASCII) is not None and int(port) < 1 << 16
    except ValueError:
        known = False
    if not known:
        raise values.bad_value(name, raw, "an address and a port, such as 10.1.2.3:10911 or [fd00::1]:10911")
    return raw.strip()


_SELECTORS = {selector.value.lower(): selector for selector in Selector}


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkOptions:
    """Values of the sink's options; each field declares an option."""

    path: str | None = option(
        "a directory",
        values.text,
        "The store directory, as driver and workers see it; created if its parent exists. Usually the argument of "
        "`save` or `start`.",
        default=None,
    )
    topic: str | None = option(
        "a name",
        _topic,
        "The topic of all rows, in place of the column `topic`.",
        default=None,
    )
    exactly_once: bool = switch(
        "`true`: tasks stage their rows, and the driver appends all of them at once. `false`: each task appends its "
        "own rows, at least once.",
        default=True,
    )
    app: str | None = option(
        "a name",
        _name,
        "Identity under which batches are recorded. A batch write needs `txnVersion`, too. In a stream it replaces the "
        "query's id.",
        default=None,
        name="txnAppId",
    )
    version: int | None = option(
        "a number, 0 or more",
        _version,
        "Number of the batch of `txnAppId`. A number up to the last committed one is not written again.",
        default=None,
        name="txnVersion",
        mode=Mode.BATCH,
    )
    on_changed_replay: OnChangedReplay = option(
        "fail, skip",
        values.choice({"fail": OnChangedReplay.FAIL, "skip": OnChangedReplay.SKIP}),
        "A committed batch that comes again with another number of rows fails the write, or its rows are "
        "left out with a warning.",
        default=OnChangedReplay.FAIL,
        shown="fail",
    )
    create_topic: bool = switch(
        "Whether missing topics are created. `false` makes a missing topic an error, and a queue beyond the last queue "
        "of a topic.",
        default=True,
    )
    system_topics: bool = switch(
        "Whether rows may go to [system topics](sink.md#refused-writes).",
        default=False,
        name="allowSystemTopics",
    )
    default_queues: int = option(
        COUNT,
        _queues,
        "Number of queues of a created topic; a broker's `defaultTopicQueueNums`.",
        default=DEFAULT_QUEUES,
        name="defaultQueueNums",
    )
    selector: Selector = option(
        "auto, column, shardingKey, roundrobin",
        values.choice(_SELECTORS),
        "[Choice of the queue](sink.md#choice-of-the-queue).",
        default=Selector.AUTO,
        name="queueSelector",
        shown="auto",
    )
    on_null_topic: OnNull = option(
        "fail, skip",
        values.choice({"fail": OnNull.FAIL, "skip": OnNull.SKIP}),
        "A row whose topic is null fails the write, or is left out.",
        default=OnNull.FAIL,
        shown="fail",
    )
    on_null_body: OnNull = option(
        "fail, empty, skip",
        values.choice({"fail": OnNull.FAIL, "empty": OnNull.EMPTY, "skip": OnNull.SKIP}),
        "A row whose body is null fails the write, becomes a message with an empty body, or is left out.",
        default=OnNull.FAIL,
        shown="fail",
    )
    max_body_bytes: int = option(
        SIZE,
        _int32(values.size),
        "The largest body. A larger one fails the write; the broker's own must be as large.",
        default=4 << 20,
        name="maxMessageSize",
        shown="4m",
    )
    lock_timeout_s: float = option(
        "a duration",
        _seconds,
        "Longest wait while another writer has the store open.",
        default=120.0,
        name="lockTimeout",
        shown="120s",
    )
    flush: Flush = option(
        "sync, async",
        values.choice(_FLUSH),
        "With `exactlyOnce=false`: whether each append is synced (`sync`), or a timer and the end of the task "
        "sync the rows (`async`).",
        default=Flush.SYNC,
        shown="sync",
    )
    waits_for_replicas: bool = option(
        "async, sync",
        values.choice({"async": False, "sync": True}),
        "`sync`: a write ends only when "
        "[replicas have its rows](replication.md#synchronous-replication-of-a-sink), and fails otherwise.",
        default=False,
        name="replication",
        shown="async",
    )
    replication_timeout_s: float = option(
        "a duration",
        _seconds,
        "With `replication=sync`: the longest wait for replicas, before a commit and again after it.",
        default=30.0,
        name="replicationTimeout",
        shown="30s",
    )
    in_sync_replicas: int = option(
        COUNT,
        values.positive,
        "With `replication=sync`: the copies that hold the rows when the write ends, the store's own included.",
        default=2,
    )
    compress_over_bytes: int | None = option(
        SIZE,
        values.size,
        "Deflate bodies of at least this size, as RocketMQ's clients do from 4 KiB on.",
        default=None,
        name="compressMsgBodyOverHowmuch",
        shown="none",
    )
    record_crc: bool = switch(
        "Whether records carry a checksum of all their bytes, not only of the body.",
        default=True,
        name="enabledAppendPropCRC",
    )
    store_host: str = option(
        "`ip:port`",
        _host,
        "The broker's address that records state: its `brokerIP1` and `listenPort`.",
        default="127.0.0.1:10911",
    )
    segment_bytes: int | None = option(
        SIZE,
        _int32(values.size, least=1 << 10),
        "Bytes of a CommitLog segment of a new store. An existing store keeps its size; another value is an error.",
        default=None,
        name="mappedFileSizeCommitLog",
        shown="1g",
    )
    queue_file_bytes: int | None = option(
        SIZE,
        _int32(values.size),
        "Bytes of a ConsumeQueue file, 20 per message; as above.",
        default=None,
        name="mappedFileSizeConsumeQueue",
        shown="6000000",
    )
    index_slots: int | None = option(
        COUNT,
        _int32(values.positive),
        "Hash slots of an index file; as above.",
        default=None,
        name="maxHashSlotNum",
        shown="5000000",
    )
    index_entries: int | None = option(
        COUNT,
        _int32(values.positive, least=2),
        "Entries of an index file; as above.",
        default=None,
        name="maxIndexNum",
        shown="20000000",
    )
    index: bool = switch("Whether keys are indexed.", default=True, name="messageIndexEnable")


SINK: Final = OptionTable.of("sink", SinkOptions, STRICT_OPTIONS)
