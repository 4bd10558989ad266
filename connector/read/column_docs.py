"""Meanings of the source's columns for the tables of docs/options.md: source field, unit, and when a column is null."""

from dataclasses import dataclass
from typing import Final

_DAMAGED: Final = "damaged record"
_TIME: Final = "the clock of the broker; stored as milliseconds since 1970, in UTC"


@dataclass(frozen=True, slots=True)
class ColumnMeaning:
    """One line of the reference."""

    source: str
    null: str | None = None
    """Reason for a null in a column of a whole message: None if only a damaged record has one, empty for never."""

    @property
    def null_text(self) -> str:
        """When the column is null."""
        if self.null is None:
            return _DAMAGED
        return f"{self.null}; {_DAMAGED}" if self.null else "never"


NATIVE_MEANINGS: Final[dict[str, ColumnMeaning]] = {
    "topic": ColumnMeaning("topic of the queue", null=""),
    "queueId": ColumnMeaning("queue id, from 0", null=""),
    "queueOffset": ColumnMeaning("number of the message in its queue, from 0", null=""),
    "body": ColumnMeaning("body, inflated unless `rawBody=true`"),
    "tags": ColumnMeaning("property `TAGS`", null="no tags"),
    "keys": ColumnMeaning("property `KEYS`: keys separated by blanks", null="no keys"),
    "uniqKey": ColumnMeaning("property `UNIQ_KEY`: the message id that the producer's client made", null="no such id"),
    "bornTimestamp": ColumnMeaning("the clock of the producer; stored as milliseconds since 1970, in UTC"),
    "storeTimestamp": ColumnMeaning(_TIME + ". Timestamp options go by it"),
    "properties": ColumnMeaning("all properties", null="no properties"),
    "msgId": ColumnMeaning("`offsetMsgId`: store host and physical offset, in hexadecimal"),
    "physicalOffset": ColumnMeaning("offset of the record in the CommitLog, in bytes"),
    "storeSize": ColumnMeaning("size of the stored record, in bytes"),
    "flag": ColumnMeaning("`FLAG` of the producer"),
    "sysFlag": ColumnMeaning("`SYSFLAG`: compression, transaction state, address families"),
    "bodyCrc": ColumnMeaning("`BODYCRC`: CRC-32 of the stored body"),
    "reconsumeTimes": ColumnMeaning("number of failed deliveries"),
    "tagsCode": ColumnMeaning("tags code of the queue entry: a hash of the tags, or a delivery time in milliseconds"),
    "preparedTransactionOffset": ColumnMeaning("physical offset of the half message; 0 without a transaction"),
    "bornHost": ColumnMeaning("`ip:port` of the producer"),
    "storeHost": ColumnMeaning("`ip:port` of the broker"),
    "brokerName": ColumnMeaning("name of the store: `brokerNames`, or a part of its path", null=""),
    "segment": ColumnMeaning("file name of the CommitLog segment"),
}

KAFKA_MEANINGS: Final[dict[str, ColumnMeaning]] = {
    "key": ColumnMeaning("`keys` as UTF-8", null="no keys"),
    "value": ColumnMeaning("`body`"),
    "topic": ColumnMeaning("`topic`", null=""),
    "partition": ColumnMeaning("`queueId`", null=""),
    "offset": ColumnMeaning("`queueOffset`", null=""),
    "timestamp": ColumnMeaning(f"`storeTimestamp`: {_TIME}. Timestamp options go by it"),
    "timestampType": ColumnMeaning("always 1, Kafka's `LogAppendTime`", null=""),
    "headers": ColumnMeaning("`properties`, values as UTF-8", null="no properties"),
    "brokerName": ColumnMeaning("`brokerName`", null=""),
}
