"""The options of the sink: topic, exactly-once commits, queues, and how the store is written.

To add an option: a declaration here, a field in `WriteOptions`, and
``python -m segmentlog.connector.option_docs docs/options.md``.
"""

import ipaddress
import re
from enum import Enum
from typing import Final

from segmentlog.store import ConfigError, Flush, OnChangedReplay
from segmentlog.store.sink import topic_problem

from . import values
from .option import COUNT, SIZE, STRICT_OPTIONS, SWITCH, Mode, Option, Table


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
    """Read a whole number from 0 to 2**63 - 1."""
    if not re.fullmatch(r"\+?\d{1,19}", raw.strip(), re.ASCII) or int(raw) >= 1 << 63:
        raise values.bad_value(name, raw, "a whole number, 0 or more, that grows from one write to the next")
    return int(raw)


def _seconds(name: str, raw: str) -> float:
    """Read a duration as seconds."""
    return values.duration_ms(name, raw) / 1000


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


_FLUSH = {"sync": Flush.SYNC, "async": Flush.ASYNC}
_SELECTORS = {selector.value.lower(): selector for selector in Selector}

SINK: Final = Table("sink")

PATH: Final = SINK.add(
    Option(
        name="path",
        value="a directory",
        parse=values.text,
        default=None,
        meaning="The store directory, as driver and workers see it; it is made if there is none, its parent is there. "
        "Usually the argument of `save` or `start`.",
    )
)
TOPIC: Final = SINK.add(
    Option(
        name="topic",
        value="a name",
        parse=_topic,
        default=None,
        meaning="The topic of all rows, whatever a column `topic` says. Without it that column is needed.",
    )
)
EXACTLY_ONCE: Final = SINK.add(
    Option(
        name="exactlyOnce",
        value=SWITCH,
        parse=values.boolean,
        default=True,
        meaning="Whether tasks stage their rows and the driver appends all of them at once, or each task appends its "
        "own straight away, at least once.",
    )
)
TXN_APP_ID: Final = SINK.add(
    Option(
        name="txnAppId",
        value="a name",
        parse=_name,
        default=None,
        meaning="Under which name batches are remembered. In batches together with `txnVersion`; in streams, where it "
        "takes the place of the query's id, alone.",
    )
)
TXN_VERSION: Final = SINK.add(
    Option(
        name="txnVersion",
        value="a number, 0 or more",
        parse=_version,
        default=None,
        mode=Mode.BATCH,
        meaning="Which batch of `txnAppId` this is. A version that is not above the last one is not written again.",
    )
)
ON_CHANGED_REPLAY: Final = SINK.add(
    Option(
        name="onChangedReplay",
        value="fail, skip",
        parse=values.choice({"fail": OnChangedReplay.FAIL, "skip": OnChangedReplay.SKIP}),
        default=OnChangedReplay.FAIL,
        default_text="fail",
        meaning="A committed batch that comes again with another number of rows fails the write, or its rows are "
        "left out with a warning.",
    )
)
CREATE_TOPIC: Final = SINK.add(
    Option(
        name="createTopic",
        value=SWITCH,
        parse=values.boolean,
        default=True,
        meaning="Whether topics that the store does not have are made. If not, they are an error, as are queues beyond "
        "those that a topic has.",
    )
)
ALLOW_SYSTEM_TOPICS: Final = SINK.add(
    Option(
        name="allowSystemTopics",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        meaning="Whether rows may go to topics of the broker (`SCHEDULE_TOPIC_XXXX`, `TBW102`, `rmq_sys_…`) and of "
        "consumer groups (`%RETRY%…`, `%DLQ%…`). If not, such a topic is an error.",
    )
)
DEFAULT_QUEUE_NUMS: Final = SINK.add(
    Option(
        name="defaultQueueNums",
        value=COUNT,
        parse=values.positive,
        default=8,
        meaning="The number of queues of a topic that is made; a broker's `defaultTopicQueueNums`.",
    )
)
QUEUE_SELECTOR: Final = SINK.add(
    Option(
        name="queueSelector",
        value="auto, column, shardingKey, roundrobin",
        parse=values.choice(_SELECTORS),
        default=Selector.AUTO,
        default_text="auto",
        meaning="What chooses the queue: the column `queueId`, a hash of the column `shardingKey`, or each in turn. "
        "`auto` takes the first of these that there is.",
    )
)
ON_NULL_TOPIC: Final = SINK.add(
    Option(
        name="onNullTopic",
        value="fail, skip",
        parse=values.choice({"fail": OnNull.FAIL, "skip": OnNull.SKIP}),
        default=OnNull.FAIL,
        default_text="fail",
        meaning="A row whose topic is null fails the write, or is left out.",
    )
)
ON_NULL_BODY: Final = SINK.add(
    Option(
        name="onNullBody",
        value="fail, empty, skip",
        parse=values.choice({"fail": OnNull.FAIL, "empty": OnNull.EMPTY, "skip": OnNull.SKIP}),
        default=OnNull.FAIL,
        default_text="fail",
        meaning="A row whose body is null fails the write, becomes a message with an empty body, or is left out.",
    )
)
MAX_MESSAGE_SIZE: Final = SINK.add(
    Option(
        name="maxMessageSize",
        value=SIZE,
        parse=values.size,
        default=4 << 20,
        default_text="4m",
        meaning="The largest body. A larger one fails the write; the broker's own must be as large.",
    )
)
LOCK_TIMEOUT: Final = SINK.add(
    Option(
        name="lockTimeout",
        value="a duration with its unit: 30s, 5m",
        parse=_seconds,
        default=120.0,
        default_text="120s",
        meaning="How long to wait while another write has the store.",
    )
)
FLUSH: Final = SINK.add(
    Option(
        name="flush",
        value="sync, async",
        parse=values.choice(_FLUSH),
        default=Flush.SYNC,
        default_text="sync",
        meaning="With `exactlyOnce=false`: whether each append is synced (`sync`), or a timer and the end of the task "
        "sync the rows (`async`). A batch that is appended exactly once is always synced before it is committed.",
    )
)
REPLICATION: Final = SINK.add(
    Option(
        name="replication",
        value="async, sync",
        parse=values.choice({"async": False, "sync": True}),
        default=False,
        default_text="async",
        meaning="`sync`: a write ends only when replicas have its rows, and fails otherwise. `segmentlog serve` serves "
        "the replicas, see [replication.md](replication.md#synchronous-replication-of-a-sink).",
    )
)
REPLICATION_TIMEOUT: Final = SINK.add(
    Option(
        name="replicationTimeout",
        value="a duration with its unit: 30s, 5m",
        parse=_seconds,
        default=30.0,
        default_text="30s",
        meaning="With `replication=sync`: the longest wait for replicas, before a commit and again after it.",
    )
)
IN_SYNC_REPLICAS: Final = SINK.add(
    Option(
        name="inSyncReplicas",
        value=COUNT,
        parse=values.positive,
        default=2,
        meaning="With `replication=sync`: the copies that hold the rows when the write ends, the store's own included.",
    )
)
COMPRESS_MSG_BODY_OVER_HOWMUCH: Final = SINK.add(
    Option(
        name="compressMsgBodyOverHowmuch",
        value=SIZE,
        parse=values.size,
        default=None,
        default_text="none",
        meaning="Deflate bodies of at least this size, as RocketMQ's clients do from 4 KiB on.",
    )
)
ENABLED_APPEND_PROP_CRC: Final = SINK.add(
    Option(
        name="enabledAppendPropCRC",
        value=SWITCH,
        parse=values.boolean,
        default=True,
        meaning="Whether records carry a checksum of all their bytes, not only of the body.",
    )
)
STORE_HOST: Final = SINK.add(
    Option(
        name="storeHost",
        value="`ip:port`",
        parse=_host,
        default="127.0.0.1:10911",
        meaning="The broker's address that records state: its `brokerIP1` and `listenPort`.",
    )
)
MAPPED_FILE_SIZE_COMMIT_LOG: Final = SINK.add(
    Option(
        name="mappedFileSizeCommitLog",
        value=SIZE,
        parse=values.size,
        default=None,
        default_text="that of the store; 1g",
        meaning="Bytes of a CommitLog segment, for a store that is made. One that is there keeps its own; saying "
        "something else is an error.",
    )
)
MAPPED_FILE_SIZE_CONSUME_QUEUE: Final = SINK.add(
    Option(
        name="mappedFileSizeConsumeQueue",
        value=SIZE,
        parse=values.size,
        default=None,
        default_text="that of the store; 6000000",
        meaning="Bytes of a ConsumeQueue file, which has 20 for each message; as above.",
    )
)
MAX_HASH_SLOT_NUM: Final = SINK.add(
    Option(
        name="maxHashSlotNum",
        value=COUNT,
        parse=values.positive,
        default=None,
        default_text="that of the store; 5000000",
        meaning="Hash slots of an index file; as above.",
    )
)
MAX_INDEX_NUM: Final = SINK.add(
    Option(
        name="maxIndexNum",
        value=COUNT,
        parse=values.positive,
        default=None,
        default_text="that of the store; 20000000",
        meaning="Entries of an index file; as above.",
    )
)
MESSAGE_INDEX_ENABLE: Final = SINK.add(
    Option(
        name="messageIndexEnable",
        value=SWITCH,
        parse=values.boolean,
        default=True,
        meaning="Whether keys are indexed.",
    )
)

SINK.add(STRICT_OPTIONS)
