r"""A broker's configuration: its properties file, and the offsets in its JSON documents.

::

    broker.conf                    deleteWhen=04   name: value   name value   # comment   ! comment
                                   storePathRootDir=/data/\
                                       store            a line that ends in an odd number of \ continues in the next one
                                   name=a\u00e9\tb    escapes
    config/consumerOffset.json     offsetTable   {"topic@group": {queue id: next queue offset}}
    …/offsets.json (of a client)   offsetTable   {{brokerName, queueId, topic}: next queue offset}

Fields that are missing have RocketMQ's defaults, unknown fields are ignored; a field of another type than RocketMQ
writes is an error. An empty document is a store without that file. RocketMQ: ``ConfigManager``; ``mqbroker -c`` reads
the properties by ``java.util.Properties.load``.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import FormatError
from .documents import Document, Json, Key

_FIX: Final = "Was the document edited by hand? Its former state may be in the file with the suffix .bak"


QUEUE_ID_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1
_BLANKS: Final = " \t\f"
_NAME: Final = re.compile(r"(?:\\.|[^\\ \t\f=:])*")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def is_position(queue_id: int, offset: int) -> bool:
    """Return whether a queue id and an offset fit RocketMQ's types, ``int`` and ``long``."""
    return 0 <= queue_id <= QUEUE_ID_MAX and 0 <= offset <= OFFSET_MAX


class GroupTopic(NamedTuple):
    """Whose offsets: the key ``topic@group``."""

    topic: str
    group: str


class ClientQueue(NamedTuple):
    """A queue as clients know it."""

    topic: str
    broker_name: str
    queue_id: int


def consumer_offsets(document: Document) -> dict[GroupTopic, dict[int, int]]:
    """Read ``consumerOffset.json``: next queue offset by topic and group, then by queue id."""
    # As in brokers, a key without `@` belongs to no group and is skipped; an offset below 0 is unknown.
    return {
        GroupTopic(*key.split("@", 1)): _offsets(key, offsets)
        for key, offsets in _table(document, "offsetTable").items()
        if isinstance(key, str) and "@" in key
    }


def light_offsets(document: Document) -> dict[GroupTopic, int]:
    """Read ``lmqOffsetTable`` of ``lmqConsumerOffset.json``: next offset of the only queue by topic and group."""
    return {
        GroupTopic(*key.split("@", 1)): _integer(offset, "lmqOffsetTable", key)
        for key, offset in _table(document, "lmqOffsetTable").items()
        if isinstance(key, str) and "@" in key
    }


def client_offsets(document: Document) -> dict[ClientQueue, int]:
    """Read a broadcasting client's ``offsets.json``; `FormatError` for a key that is not a queue, or a wrong offset."""
    found: dict[ClientQueue, int] = {}
    for key, offset in _table(document, "offsetTable").items():
        if not isinstance(key, tuple):
            raise FormatError(f"offsetTable has the key {key!r} where a queue was expected", fix=_FIX)
        read = _Fields("offsetTable", dict(key))
        queue = ClientQueue(read.text("topic", ""), read.text("brokerName", ""), read.integer("queueId", 0))
        found[queue] = _integer(offset, "offsetTable", queue)
        _check_position(queue.topic, queue.queue_id, found[queue])
    return found


class _Fields:
    """Fields of one entry, with RocketMQ's defaults for missing and null fields."""

    def __init__(self, owner: Key, fields: Json) -> None:
        if not isinstance(fields, dict):
            raise FormatError(f"{owner!r} holds {fields!r} where an object was expected", fix=_FIX)
        self._owner = owner
        self._fields = fields

    def integer(self, name: str, otherwise: int) -> int:
        value = self._fields.get(name)
        return otherwise if value is None else _integer(value, self._owner, name)

    def text(self, name: str, otherwise: str) -> str:
        value = self._fields.get(name)
        if value is None:
            return otherwise
        if not isinstance(value, str):
            raise FormatError(f"{name} of {self._owner!r} is {value!r} where text was expected", fix=_FIX)
        return value


def _table(document: Document, name: str) -> Document:
    table = document.get(name)
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise FormatError(f"{name} is {table!r} where an object was expected", fix=_FIX)
    return table


def _offsets(owner: str, table: Json) -> dict[int, int]:
    if not isinstance(table, dict):
        raise FormatError(f"{owner!r} holds {table!r} where queues and their offsets were expected", fix=_FIX)
    found = {_integer(key, owner, "a key"): _integer(value, owner, key) for key, value in table.items()}
    for queue_id, offset in found.items():
        _check_position(owner, queue_id, offset)
    return found


def _check_position(owner: object, queue_id: int, offset: int) -> None:
    if not is_position(queue_id, max(offset, 0)):
        raise FormatError(
            f"{owner!r} has offset {offset} for queue {queue_id}: queue ids are from 0 to {QUEUE_ID_MAX}, "
            f"offsets up to {OFFSET_MAX}",
            fix=_FIX,
        )


def _integer(value: "Json | Key", owner: object, name: object) -> int:
    """Parse an integer that is written bare or, as fastjson also accepts it, in quotes."""
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{name} of {owner!r} is {value!r} where an integer was expected", fix=_FIX)
    return value


def parse_properties(text: str) -> dict[str, str]:
    """Parse a properties text by name; of equal names the last counts. `FormatError` for an incomplete escape."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        name = _NAME.match(line)
        assert name is not None  # it matches the empty string, too
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None
        found[_unescaped(name.group(), line)] = _unescaped(line[separator.end() :], line)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Join continued lines; leave out comments and blank lines."""
    held: str | None = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(_BLANKS)
        if held is None and (not line or line[0] in "#!"):
            continue
        line = (held or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held = line[:-1]
        else:
            held = None
            yield line
    if held:
        yield held


def _unescaped(text: str, line: str) -> str:
    def shown(found: re.Match[str]) -> str:
        code, letter = found.groups()
        if code is None and letter == "u":
            raise FormatError(
                f"{line!r} holds an escape \\u without four hexadecimal digits", fix="Correct the configuration file"
            )
        return chr(int(code, 16)) if code is not None else _LETTERS.get(letter or "", letter or "")

    return _ESCAPE.sub(shown, text)
