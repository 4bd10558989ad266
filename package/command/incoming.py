r"""Messages on standard input, as batches for ``MessageStore.append_batch``: lines, or the JSON lines of ``cat``.

::

    lines    one\ntwo\n                        ──► body one, two                 topic of the command line
    jsonl    {"topic":"orders","body":"a"}\n   ──► topic, queueId, body, tags, keys, properties, …
             {"topic":"orders","bodyHex":"ff00"}\n
                                                   │
    values of the command line ──► replace the column, or add a property

A batch has up to 4 MiB of lines. It ends when a pipe is empty for 10 ms, so that lines of a slow writer are appended
soon.
"""

import json
import select
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.query.rows import QueueSpans
from segmentlog.query.suggestions import did_you_mean, listing
from segmentlog.query.times import Instant, parse_time
from segmentlog.store import COLUMN_PROPERTIES, LEFT_OUT, NATIVE_SCHEMA, WRITTEN_COLUMNS, ConfigError

from .errors import UsageError

if TYPE_CHECKING:
    from segmentlog.store import AppendedBatch

_READ_BYTES: Final = 4 << 20
_WAIT_S: Final = 0.01
_LINE_BYTES_MAX: Final = 64 << 20
_INT_MAX: Final = (1 << 31) - 1
_TEXTS: Final = pa.map_(pa.string(), pa.string())
_FORM: Final = "Write an object per line, as `segmentlog cat -o jsonl` does"
_SCHEMA: Final = pa.schema(
    [
        (column.name, pa.int64() if column.type == "timestamp" else NATIVE_SCHEMA.field(column.name).type)
        for column in WRITTEN_COLUMNS
    ]
)


class Lines(NamedTuple):
    """Messages of consecutive lines, and ``bad``, the error of the line after them, which nothing follows."""

    batch: pa.RecordBatch
    bad: UsageError | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed:
    """Values of the command line for all messages; None leaves the values of the lines."""

    topic: str | None = None
    queue: int | None = None
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def text_lines(stdin: BinaryIO, fixed: Fixed) -> Iterator[Lines]:
    """Yield a message per line: its body is the line without its line end, also if empty; at most 64 MiB."""
    assert fixed.topic is not None
    for data in _whole_lines(stdin):
        bodies = pa.array(data.split(b"\n")[:-1], pa.binary())
        values = {
            "topic": pa.scalar(fixed.topic),
            "queueId": pa.scalar(fixed.queue or 0, pa.int32()),
            "tags": None if fixed.tags is None else pa.scalar(fixed.tags),
            "keys": None if fixed.keys is None else pa.scalar(fixed.keys),
            "properties": pa.scalar(list(fixed.properties.items()), _TEXTS) if fixed.properties else None,
        }
        repeated = {name: pa.repeat(value, len(bodies)) for name, value in values.items() if value is not None}
        yield Lines(pa.record_batch({"body": bodies, **repeated}))


def json_lines(stdin: BinaryIO, fixed: Fixed) -> Iterator[Lines]:
    """Yield the messages of JSON lines, until one is bad. A line of more than 64 MiB is a `UsageError`."""
    values = {"topic": fixed.topic, "queueId": fixed.queue, "tags": fixed.tags, "keys": fixed.keys}
    columns = {name: value for name, value in values.items() if value is not None}
    first = 1
    for data in _whole_lines(stdin):
        rows: list[dict[str, Any]] = []
        bad = None
        for line in data.split(b"\n")[:-1]:
            try:
                rows.append(_message(line, columns, fixed.properties))
            except UsageError as error:
                bad = UsageError(f"standard input: line {first + len(rows)} {error.problem}", fix=error.fix)
                break
        yield Lines(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA), bad)
        if bad is not None:
            return
        first += len(rows)


def _whole_lines(stdin: BinaryIO) -> Iterator[bytes]:
    """Yield what was read, cut after the last line end; the last line gets one if it has none."""
    parts: list[bytes] = []
    while data := _read(stdin):
        stop = data.rfind(b"\n") + 1
        if stop:
            yield b"".join([*parts, data[:stop]])
            parts = []
        parts += [data[stop:]] if stop < len(data) else []
        if sum(map(len, parts)) > _LINE_BYTES_MAX:
            problem = f"standard input: a line is longer than {_LINE_BYTES_MAX} bytes"
            raise UsageError(problem, fix="Write a line per message")
    if parts:
        yield b"".join([*parts, b"\n"])


def _read(stdin: BinaryIO) -> bytes:
    """Return up to 4 MiB, nothing only at the end of the stream; batches as small as a pipe, 64 KiB, are slow."""
    read = getattr(stdin, "read1", stdin.read)
    parts: list[bytes] = [read(_READ_BYTES)]
    rest = _READ_BYTES - len(parts[0])
    while parts[-1] and rest and _is_ready(stdin):
        parts.append(read(rest))
        rest -= len(parts[-1])
    return b"".join(parts)


def _is_ready(stdin: BinaryIO) -> bool:
    """Return whether a file or pipe can be read within 10 ms; False for a stream in memory."""
    try:
        return bool(select.select([stdin.fileno()], [], [], _WAIT_S)[0])
    except OSError:
        return False


# -- JSON


def _message(line: bytes, fixed: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of a message; ``fixed`` columns and properties are those of the command line.

    The problem of a `UsageError` follows "line N".
    """
    row: dict[str, Any] = {}
    for name, value in _parsed(line).items():
        read = _KEYS.get(name)
        if read is not None:
            row[name] = None if value is None else read(name, value)
        elif name not in LEFT_OUT:
            fix = f"{did_you_mean(name, _KEYS)}The keys are {listing(list(_KEYS), most=20)}"
            raise UsageError(f"has a key `{name}` that no message has", fix=fix)
    digits = row.pop("bodyHex", None)
    if (row.get("body") is None) == (digits is None):
        problem = "has no body" if digits is None else "has both `body` and `bodyHex`"
        raise UsageError(problem, fix="Write `body` as text, or `bodyHex` as hexadecimal digits")
    if digits is not None:
        row["body"] = digits
    row |= fixed
    if row.get("queueId") is None:
        row["queueId"] = 0
    if row.get("topic") is None:
        raise UsageError("has no topic", fix="Write `topic`, or name TOPIC for all lines")
    _settle_properties(row, properties)
    return row


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode()
        found = json.loads(text)
        if "\\u" in text:  # JSON can write half of a surrogate pair, UTF-8 cannot
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise UsageError(f"is not UTF-8 at byte {error.start}", fix=_FORM) from None
    except UnicodeEncodeError:
        raise UsageError("holds half of a character (\\ud800 to \\udfff)", fix="Take it out") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not JSON: {error}", fix=_FORM) from None
    if not isinstance(found, dict):
        raise UsageError(f"is not a JSON object, it begins with `{text[:1]}`", fix=_FORM)
    return found


def _settle_properties(row: dict[str, Any], fixed: Mapping[str, str]) -> None:
    """Remove the properties that keys of the line replace, even with null, and add those of the command line."""
    properties = row.get("properties") or {}
    for name, prop in COLUMN_PROPERTIES.items():
        if name in row:
            properties.pop(prop, None)
    properties.update(fixed)
    row["properties"] = list(properties.items()) or None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"has `{name}` that is not a text", fix=f"Write `{name}` in quotes")
    return value


def _body(name: str, value: object) -> bytes:
    return _text(name, value).encode()


def _hexadecimal(name: str, value: object) -> bytes:
    text = _text(name, value)
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"has `{name}` that is not hexadecimal", fix="Write two digits per byte") from None


def _number(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise UsageError(f"has `{name}` that is not a 32-bit number", fix=f"Write `{name}` as a number without quotes")
    return value


def _count(name: str, value: object) -> int:
    found = _number(name, value)
    if found < 0:
        raise UsageError(f"has `{name}` below 0", fix=f"Write `{name}` from 0 on")
    return found


_moment: Final = lru_cache(1 << 10)(parse_time)  # neighbouring messages mostly have the same time


def _time(name: str, value: object) -> int:
    """Return ms since 1970 of ISO-8601 text with a zone, or of ms."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = _text(name, value)
    try:
        found = _moment(text)
    except ConfigError:
        found = None
    if not isinstance(found, Instant):  # a relative time means another time whenever the file is read
        problem = f"has `{name}` that is not a time with a zone"
        raise UsageError(problem, fix="Write such as 2026-01-31T12:00:00.000Z, or ms since 1970")
    return found.ms


def _pairs(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise UsageError(f"has `{name}` that is not an object of texts", fix='Write such as {"a":"1"}')
    return value


_READERS: Final = {"string": _text, "int32": _number, "timestamp": _time, "map": _pairs, "binary": _body}
_KEYS: Final[dict[str, Callable[[str, object], Any]]] = {
    **{column.name: _READERS[column.type] for column in WRITTEN_COLUMNS},
    "queueId": _count,
    "bodyHex": _hexadecimal,
}
"""Keys that a message takes, each with the function that reads its value."""


# Receipt


class Receipt(QueueSpans):
    """Messages that were appended, or only checked, by queue.

    ::

        batch, AppendedBatch ──► topic   queueId  messages  firstOffset  lastOffset
                                 orders        0       120          400         519
                                 orders        1         3            -           -      only checked, or delayed
    """

    def add_batch(self, batch: pa.RecordBatch, places: "AppendedBatch | None") -> None:
        """Add the rows of a batch, and the places where they were appended; None if they were only checked.

        Offsets are null if nothing was appended, or if all messages are delayed.
        """
        offsets = pa.nulls(batch.num_rows, pa.int64()) if places is None else pa.array(places.queue_offsets)
        if "properties" in batch.schema.names:  # a delayed message waits in another topic, at an offset of that one
            is_delayed = pc.is_valid(pc.map_lookup(batch["properties"], "DELAY", "last"))
            offsets = pc.if_else(is_delayed, pa.scalar(None, pa.int64()), offsets)
        rows = pa.table({"topic": batch["topic"], "queueId": batch["queueId"], "offset": offsets})
        found = rows.group_by(["topic", "queueId"]).aggregate(
            [("topic", "count"), ("offset", "min"), ("offset", "max")]
        )
        for row in found.to_pylist():
            self.add(row["topic"], row["queueId"], row["topic_count"], row["offset_min"], row["offset_max"])
