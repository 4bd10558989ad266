"""One message as an object: what a look-up by offset or key hands out. Scans never make any."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from .commit_log import CommitLog, FoundRecords
from .config import MAX_BODY_BYTES
from .errors import CorruptRecordError
from .format.message import Problem
from .format.message_decode import Decoder, Origin, inflate_in_pieces
from .format.properties import KEYS, TAGS, UNIQ_KEY
from .format.slices import slices, text


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message as stored, its body inflated. Times are in UTC and of millisecond precision."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body: bytes
    tags: str | None
    keys: str | None
    uniq_key: str | None
    properties: dict[str, str]
    born_timestamp: datetime
    store_timestamp: datetime
    born_host: str
    store_host: str
    flag: int
    sys_flag: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    message_id: str


def read_message(log: CommitLog, found: FoundRecords) -> Message:
    """Make an object of one record that is whole.

    Raises
    ------
    CorruptRecordError
        If its body is not what its CRC says, is compressed and damaged, or inflates to more than `MAX_BODY_BYTES`, or
        if one of its times is none that a calendar has.
    """
    records, segment = found.records, found.segment
    physical = segment.base + records.positions

    def number(field: str) -> int:
        return int(records.field(field)[0])

    topic = text(slices(records.buffer, records.topic_start, records.topic_length))[0].as_py()
    log.check_crcs(segment, records)
    _, inflated = next(inflate_in_pieces(records, MAX_BODY_BYTES, MAX_BODY_BYTES))
    if records.problem[0] != Problem.OK:
        raise CorruptRecordError(Problem(int(records.problem[0])).text, path=segment.path, offset=int(physical[0]))
    for name in ("born_timestamp", "store_timestamp"):
        millis = number(name)
        if not _FIRST_MILLIS <= millis < _STOP_MILLIS:
            raise CorruptRecordError(
                f"its {name} of {millis} ms since 1970 is in no year from 1 to 9999",
                path=segment.path,
                offset=int(physical[0]),
                fix="A scan can read this message, with the time as Arrow has it",
            )
    origin = Origin(
        topics=topic,
        queue_id=records.field("queue_id"),
        queue_offset=records.field("queue_offset"),
        physical_offset=physical,
        size=records.field("total_size"),
        tags_code=np.zeros(1, np.int64),
        broker_name="",
    )
    decoder = Decoder(records, origin, segment.path.rpartition("/")[2], inflated)

    def value(column: str) -> Any:
        return decoder.column(column)[0].as_py()

    # A column is made for many rows: what one row has without one is taken without.
    properties = dict(value("properties") or ())
    return Message(
        topic=topic,
        queue_id=number("queue_id"),
        queue_offset=number("queue_offset"),
        physical_offset=int(physical[0]),
        store_size=number("total_size"),
        body=value("body"),
        tags=properties.get(TAGS),
        keys=properties.get(KEYS),
        uniq_key=properties.get(UNIQ_KEY),
        properties=properties,
        born_timestamp=_EPOCH + timedelta(milliseconds=number("born_timestamp")),
        store_timestamp=_EPOCH + timedelta(milliseconds=number("store_timestamp")),
        born_host=value("bornHost"),
        store_host=value("storeHost"),
        flag=number("flag"),
        sys_flag=number("sys_flag"),
        body_crc=number("body_crc"),
        reconsume_times=number("reconsume_times"),
        prepared_transaction_offset=number("prepared_transaction_offset"),
        message_id=value("msgId"),
    )


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLIS: Final = int(datetime.min.replace(tzinfo=UTC).timestamp()) * 1000
_STOP_MILLIS: Final = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()) * 1000
