"""The message as one table: the header of its record in the CommitLog, and the columns that readers and writers have.

A record, big-endian, packed, its hosts 4 or 16 bytes of address each::

     0      4      8      12     16     20            28            36     40            48
    +------+------+------+------+------+-------------+-------------+------+-------------+- -
    | total| magic| body | queue| flag | queue       | physical    | sys  | born        |
    | size |      | CRC  | id   |      | offset      | offset      | flag | timestamp   |
    +------+------+------+------+------+-------------+-------------+------+-------------+- -
     48               56            64               72     76            84     88
    +- - - - - + - - -+-------------+- - - - - + - - -+------+-------------+------+---------
    | born host, port | store       | store host, port| re-  | prepared    | body | body …
    | 4 or 16  | int32| timestamp   | 4 or 16  | int32| tries| transaction | size |
    +- - - - - + - - -+-------------+- - - - - + - - -+------+-------------+------+---------
    … body | topic size: int8 (v1) or int16 (v2) | topic | properties size: int16 | properties

    Record          ──► dtype and struct of the header, offsets of its fields
    NATIVE_COLUMNS  ──► Arrow's and Spark's columns, the columns that writers give, docs/options.md
"""

from enum import Enum
from typing import Annotated, Final, NamedTuple, TypeAlias, get_args

Int4: TypeAlias = Annotated[int, "i4"]
Int8: TypeAlias = Annotated[int, "i8"]
Host: TypeAlias = Annotated[bytes, "host"]
"""Address of 4 or 16 bytes and port of 4, as stored."""


class Record(NamedTuple):
    """Record whose lengths fit; its checksums are not compared. Its numbers and hosts are the header, in this order."""

    total_size: Int4
    magic: Int4
    body_crc: Int4
    queue_id: Int4
    flag: Int4
    queue_offset: Int8
    physical_offset: Int8
    sys_flag: Int4
    born_timestamp: Int8
    born_host: Host
    store_timestamp: Int8
    store_host: Host
    reconsume_times: Int4
    prepared_transaction_offset: Int8
    body: memoryview  # a slice of the buffer, which it keeps alive
    topic: memoryview  # likewise
    properties: memoryview  # likewise


HEADER_FIELDS: Final[dict[str, str]] = {
    name: get_args(kind)[1] for name, kind in Record.__annotations__.items() if kind is not memoryview
} | {"body_length": "i4"}
"""Width of each field of the header, in the order of its bytes: ``i4``, ``i8`` or ``host``."""


class Giver(Enum):
    """Who decides the value of a column when a message is written."""

    STORE = "the store"
    PUT = "callers of append and append_batch; sinks leave it out"
    WRITER = "every writer"


class NativeColumn(NamedTuple):
    """One column of messages."""

    name: str
    type: str  # int32, int64, string, binary, timestamp or map
    meaning: str  # for a reader
    field: str | None = None  # the field of the header with its value
    property: str | None = None  # the property with its value
    giver: Giver = Giver.STORE
    writing: str = ""  # the meaning for a writer


_put, _writer = Giver.PUT, Giver.WRITER
NATIVE_COLUMNS: Final = (
    NativeColumn(
        "topic",
        "string",
        "topic of the queue",
        giver=_writer,
        writing="Needed, unless option `topic` names one for all rows.",
    ),
    NativeColumn(
        "queueId",
        "int32",
        "queue id, from 0",
        field="queue_id",
        giver=_writer,
        writing="The queue; where it is null, by `shardingKey`, else in turn.",
    ),
    NativeColumn("queueOffset", "int64", "number of the message in its queue, from 0", field="queue_offset"),
    NativeColumn(
        "body",
        "binary",
        "body, inflated unless asked for as it is stored",
        giver=_writer,
        writing="The message itself; text is stored as UTF-8. Needed.",
    ),
    NativeColumn("tags", "string", "property `TAGS`", property="TAGS", giver=_writer, writing="The tag."),
    NativeColumn(
        "keys",
        "string",
        "property `KEYS`: keys separated by blanks",
        property="KEYS",
        giver=_writer,
        writing="Keys to find the message by; an array is joined by blanks, bytes are UTF-8.",
    ),
    NativeColumn(
        "uniqKey",
        "string",
        "property `UNIQ_KEY`: the message id that the producer's client made",
        property="UNIQ_KEY",
        giver=_writer,
        writing="The client's message id; made where there is none.",
    ),
    NativeColumn(
        "bornTimestamp",
        "timestamp",
        "the producer's clock, in milliseconds",
        field="born_timestamp",
        giver=_writer,
        writing="The producer's time; where there is none, now.",
    ),
    NativeColumn(
        "storeTimestamp",
        "timestamp",
        "the broker's clock, in milliseconds; timestamp options go by it",
        field="store_timestamp",
    ),
    NativeColumn(
        "properties",
        "map",
        "all properties",
        giver=_writer,
        writing="Further properties. A column of its own wins over a property of the same name.",
    ),
    NativeColumn("msgId", "string", "`offsetMsgId`: store host and physical offset, in hexadecimal"),
    NativeColumn("physicalOffset", "int64", "offset of the record in the CommitLog, in bytes", field="physical_offset"),
    NativeColumn("storeSize", "int32", "size of the stored record, in bytes", field="total_size"),
    NativeColumn(
        "flag",
        "int32",
        "`FLAG` of the producer",
        field="flag",
        giver=_writer,
        writing="The producer's flag; 0 where there is none.",
    ),
    NativeColumn(
        "sysFlag",
        "int32",
        "`SYSFLAG`: compression, transaction state, address families",
        field="sys_flag",
        giver=_put,
    ),
    NativeColumn("bodyCrc", "int32", "`BODYCRC`: CRC-32 of the stored body", field="body_crc"),
    NativeColumn(
        "reconsumeTimes",
        "int32",
        "number of failed deliveries",
        field="reconsume_times",
        giver=_writer,
        writing="Number of failed deliveries.",
    ),
    NativeColumn(
        "tagsCode",
        "int64",
        "tags code of the queue entry: a hash of the tags, or a delivery time in milliseconds",
    ),
    NativeColumn(
        "preparedTransactionOffset",
        "int64",
        "physical offset of the half message; 0 without a transaction",
        field="prepared_transaction_offset",
        giver=_put,
    ),
    NativeColumn(
        "bornHost",
        "string",
        "`ip:port` of the producer",
        field="born_host",
        giver=_writer,
        writing="The producer's `ip:port`.",
    ),
    NativeColumn("storeHost", "string", "`ip:port` of the broker", field="store_host"),
    NativeColumn("brokerName", "string", "name of the store: the one that it is given, or a part of its path"),
    NativeColumn("segment", "string", "file name of the CommitLog segment"),
)
"""Every column that a scan can return, in the order of the reference."""
WRITTEN_COLUMNS: Final = tuple(column for column in NATIVE_COLUMNS if column.giver is Giver.WRITER)
"""Columns that every writer gives."""
LEFT_OUT: Final = tuple(column.name for column in NATIVE_COLUMNS if column.giver is not Giver.WRITER)
"""Columns of a scan that writers leave out: the store decides them, and bodies of a scan are not as `sysFlag` says."""
DEFAULT_COLUMNS: Final = tuple(column.name for column in NATIVE_COLUMNS[:9])
"""Columns of a read that names none, up to ``storeTimestamp``: other columns cost time, and few reads need them."""

COLUMN_PROPERTIES: Final = {column.name: column.property for column in NATIVE_COLUMNS if column.property is not None}
"""Properties that are columns of their own, by column."""
