"""One message as an object, for look-ups by offset; scans never create any."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from ..errors import CorruptRecordError
from ..format.message import SYS_COMPRESSED, Problem
from ..format.message_decode import host_text, inflate
from ..format.message_id import encode_offset_id
from ..format.properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from ..log.commit_log import CommitLog, FoundRecord
from .spec import MAX_BODY_BYTES


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


def read_message(log: CommitLog, found: FoundRecord) -> Message:
    """Make an object of one record that is whole.

    Raises
    ------
    CorruptRecordError
        If its body contradicts its CRC, is compressed and damaged, or inflates to more than `MAX_BODY_BYTES`. Also if
        one of its times is in no calendar year from 1 to 9999.
    """
    record, path = found.record, found.segment.path
    problem, body = log.check_crc(found), bytes(record.body)
    if problem is Problem.OK and body and record.sys_flag & SYS_COMPRESSED:
        inflated = inflate(body, record.sys_flag, MAX_BODY_BYTES)
        problem, body = (Problem.INFLATE, b"") if inflated is None else (Problem.OK, inflated)
    if problem is not Problem.OK:
        raise CorruptRecordError(problem.text, path=path, offset=record.physical_offset)
    for name in ("born_timestamp", "store_timestamp"):
        millis = getattr(record, name)
        if not _FIRST_MILLIS <= millis < _STOP_MILLIS:
            raise CorruptRecordError(
                f"its {name} of {millis} ms since 1970 is in no year from 1 to 9999",
                path=path,
                offset=record.physical_offset,
                fix="A scan can read this message, with the time as Arrow has it",
            )
    properties = parse_properties(bytes(record.properties))
    return Message(
        topic=bytes(record.topic).decode("utf-8", "replace"),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_size=record.total_size,
        body=body,
        tags=properties.get(TAGS),
        keys=properties.get(KEYS),
        uniq_key=properties.get(UNIQ_KEY),
        properties=properties,
        born_timestamp=_EPOCH + timedelta(milliseconds=record.born_timestamp),
        store_timestamp=_EPOCH + timedelta(milliseconds=record.store_timestamp),
        born_host=host_text(record.born_host),
        store_host=host_text(record.store_host),
        flag=record.flag,
        sys_flag=record.sys_flag,
        body_crc=record.body_crc,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        message_id=encode_offset_id(record.store_host, record.physical_offset),
    )


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLIS: Final = int(datetime.min.replace(tzinfo=UTC).timestamp()) * 1000
_STOP_MILLIS: Final = (int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()) + 1) * 1000
