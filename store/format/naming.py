"""Names of files, directories and topics: which are RocketMQ's, which are safe to join to a path.

::

    commitlog/00000000001073741824               20 digits: the base offset of the segment
    consumequeue/OrderTopic/3/00000000000000000000   topic as it is, queue id without padding, segment
    index/20261121021346480                      17 digits: local time of creation, yyyyMMddHHmmssSSS

A topic is a directory name here, and it comes from the disk, from records and from options. A name that is joined to a
path passes `is_safe_path_component` first.
"""

import re
from datetime import datetime
from typing import Final

from ..errors import FormatError

TOPIC_CHARS_MAX: Final = 127  # RocketMQ's limit for topics that users make
STORED_TOPIC_BYTES_MAX: Final = 255
"""Longest topic that a 5.x broker stores, and the longest directory name of most file systems."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"  # holds delayed messages; its tags codes are times of delivery
LMQ_PREFIX: Final = "%LMQ%"  # begins the name of a light queue: a further ConsumeQueue for records of another topic
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"

GROUP_CHARS: Final = f"a to z, A to Z, 0 to 9 and % | _ -, at most {STORED_TOPIC_BYTES_MAX} of them"
_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_OFFSET_MAX: Final = (1 << 63) - 1
_QUEUE_ID_MAX: Final = (1 << 31) - 1

_SYSTEM_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        "TBW102",  # the template of topics that are made by the first put
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",  # transactions that were never answered
        "CHECKPOINT_TOPIC",  # 5.3: of RocksDB stores
        "DefaultCluster",  # every broker makes a topic of its cluster's name; this is the default one
    }
)
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_")
_SYSTEM_SUFFIX: Final = "_REPLY_TOPIC"  # after the cluster's name: answers of request-reply


def segment_name(base_offset: int) -> str:
    """Name of the segment that begins at an offset; `FormatError` unless the offset is from 0 to 2**63 - 1."""
    if not 0 <= base_offset <= _OFFSET_MAX:
        raise FormatError(f"no segment can begin at offset {base_offset}: offsets go from 0 to 2**63 - 1")
    return f"{base_offset:020d}"


def index_name(created: datetime) -> str:
    """Name an index file made at a moment, in the broker's local time, to the millisecond."""
    return f"{created:%Y%m%d%H%M%S}{created.microsecond // 1000:03d}"


def is_index_name(name: str) -> bool:
    """Return whether RocketMQ would open a file in ``index/``: any number of 64 bits."""
    return _number(name, _OFFSET_MAX) is not None


def parse_queue_id(name: str) -> int | None:
    """Return the queue id that a directory's name states, or None; ``7`` is one, ``07`` and ``+7`` are not."""
    queue_id = _number(name, _QUEUE_ID_MAX)
    return queue_id if queue_id is not None and name == str(queue_id) else None


def _number(name: str, most: int) -> int | None:
    """Return the value of ASCII digits; ``str.isdecimal`` alone would take the digits of other scripts."""
    if not (name.isascii() and name.isdecimal()) or len(name) > 20:
        return None
    value = int(name)
    return value if value <= most else None


def is_safe_path_component(name: str) -> bool:
    """Return whether a name joined to a directory is an entry of that directory."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= STORED_TOPIC_BYTES_MAX
    except UnicodeEncodeError:  # half a surrogate pair: a name that is not UTF-8 on disk
        return False


def topic_problem(topic: str) -> str | None:
    """Return why a name cannot be a topic that is written to, or None.

    RocketMQ's rules: characters of ``[%|a-zA-Z0-9_-]``, at most 127 of them; retry and dead-letter topics, whose names
    are made of a group's, up to 255.
    """
    if not topic:
        return "a topic needs a name"
    if not _TOPIC.fullmatch(topic):
        bad = next(character for character in topic if not _TOPIC.fullmatch(character))
        return f"topic {topic[:80]!r} holds {bad!r}, and can hold a to z, A to Z, 0 to 9 and % | _ - only"
    most = STORED_TOPIC_BYTES_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_CHARS_MAX
    if len(topic) > most:
        return f"topic {topic[:80]!r}… has {len(topic)} characters, at most {most} can be"
    return None


def is_group_name(name: str) -> bool:
    """Return whether RocketMQ takes a name for a consumer group: characters of a topic, at most 255 of them."""
    return _TOPIC.fullmatch(name) is not None and len(name) <= STORED_TOPIC_BYTES_MAX


def is_readable_topic(name: str) -> bool:
    """Return whether a name can be a topic that is read: printable, and an entry of its directory."""
    # Wider than `topic_problem`: a 5.x store takes topics of 128 characters and more, and light queues (`%LMQ%…`) carry
    # names of MQTT.
    return is_safe_path_component(name) and name.isprintable()


def is_dispatched_topic(topic: str) -> bool:
    """Return whether a text of a record can be the directory of a topic; a replica's master may send any."""
    # The replacement character replaced bytes that are not text.
    return is_readable_topic(topic) and "\N{REPLACEMENT CHARACTER}" not in topic


def is_system_topic(topic: str) -> bool:
    """Return whether a topic belongs to the broker or to a consumer group, and not to a producer.

    True for the topics of `is_broker_topic`, and for the retry (``%RETRY%group``) and dead-letter (``%DLQ%group``)
    topics, which hold second copies of messages. A pattern leaves these topics out and a sink refuses to write to
    them, unless an option asks for them.
    """
    return is_broker_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_broker_topic(topic: str) -> bool:
    """Return whether a broker reserves a topic, and creates it without an entry in ``topics.json``."""
    # RocketMQ's list (``TopicValidator``) with its prefix ``rmq_sys_``, and the topics of a cluster. A broker also has
    # an empty topic of its own name, which only its configuration tells.
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIXES) or topic.endswith(_SYSTEM_SUFFIX)
