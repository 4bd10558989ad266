"""RocketMQ's configuration documents: JSON as fastjson writes and reads it, which is wider than JSON.

::

    {
      "offsetTable":{
        "OrderTopic@groupA":{0:12,1:30            integer keys without quotes
        },
        {"brokerName":"a","queueId":0}:7,         objects as keys (offsets that clients keep)
      },                                          extra commas
    }

Plain JSON is read by Python's own parser, some twenty times as fast. The rest is read in one pass, linear in the text,
by a parser of its own. A lark grammar takes five times as long for a large ``consumerOffset.json``. `broker_config`
reads the meaning. RocketMQ: ``ConfigManager``, fastjson's ``DefaultJSONParser`` and ``PrettyFormat``.
"""

import json
import math
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, cast

from ..errors import FormatError

Scalar: TypeAlias = str | int | float | bool | None
ObjectKey: TypeAlias = tuple[tuple[str, Scalar], ...]  # an object that is a key: its fields in their order
Key: TypeAlias = str | int | ObjectKey  # a quoted key is a str, a bare number an int: `"5"` and `5` are two keys
Json: TypeAlias = "Scalar | list[Json] | dict[Key, Json]"
Document: TypeAlias = dict[Key, Json]

DEPTH_MAX: Final = 64  # RocketMQ's own documents go 6 deep
_DIGITS_MAX: Final = 64  # Java's numbers have 20, and reading n digits takes n² steps

# Possessive throughout: nothing is tried twice, so a hostile text costs no more than its length.
_BLANK: Final = re.compile(r"(?:[ \t\r\n\f\b]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_COMMAS: Final = re.compile(rf"(?:,{_BLANK.pattern})*+")
_STRINGS: Final = {
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL),
}
_NUMBER: Final = re.compile(r"-?[0-9]++(\.[0-9]*+)?+([eE][+-]?[0-9]++)?+")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,19}")
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*+")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = dict(zip("bfnrtv0\"'\\/", "\b\f\n\r\t\v\0\"'\\/", strict=True))
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LITERALS: Final[dict[str, Scalar]] = {"true": True, "false": False, "null": None}


class Origin(Enum):
    """Which file a document came from."""

    FILE = "file"
    BACKUP = "backup"
    NOTHING = "nothing"


class Loaded(NamedTuple):
    """A document, and where it came from."""

    document: Document
    origin: Origin


def load(file: bytes | None, backup: bytes | None) -> Loaded:
    """Choose between ``FILE`` and ``FILE.bak`` (None if missing) as a broker does when it starts, and parse."""
    # The backup counts where the file is missing, empty or cannot be parsed; without either the document is empty. If
    # neither can be parsed, the error is that of the file: a broker would forget every offset, a reader reports it.
    problem: FormatError | None = None
    for data, origin in ((file, Origin.FILE), (backup, Origin.BACKUP)):
        if not data:
            continue
        try:
            # Java also replaces bytes that are not UTF-8.
            return Loaded(parse(data.decode("utf-8", "replace")), origin)
        except FormatError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return Loaded({}, Origin.NOTHING)


class _Text:
    """A document, and the position up to which it is read. Nesting is limited, so recursion is safe."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        """Skip blanks and comments, and return the character after them; empty at the end."""
        self.match(_BLANK)
        return self.text[self.at : self.at + 1]

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def string(self, quote: str) -> str:
        found = self.match(_STRINGS[quote])
        if found is None:
            self.fail("a string that never ends")
        inner: str = found[1]
        if "\\" in inner:
            inner = _ESCAPE.sub(self._unescape, inner)
        if _SURROGATE.search(inner):
            # Pairs become their character; a half cannot be written as UTF-8.
            inner = inner.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return inner

    def _unescape(self, found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        if digits:
            return chr(int(digits, 16))
        if found[3] not in _ESCAPED:
            self.fail(f"the unknown escape {found[0]!r} in a string")
        return _ESCAPED[found[3]]

    def object(self, depth: int) -> Document:
        """Read the object whose bracket is next."""
        fields: Document = {}
        self._open(depth)
        while self._goes_on("}", after_item=bool(fields)):
            key = self._key(depth)
            if self.peek() != ":":
                self.fail_here("a colon")
            self.at += 1
            fields[key] = self._value(depth)
        return fields

    def _array(self, depth: int) -> "list[Json]":
        items: list[Json] = []
        self._open(depth)
        while self._goes_on("]", after_item=bool(items)):
            items.append(self._value(depth))
        return items

    def _open(self, depth: int) -> None:
        self.at += 1
        if depth > DEPTH_MAX:
            self.fail(f"nesting of more than {DEPTH_MAX} brackets")

    def _goes_on(self, closing: str, *, after_item: bool) -> bool:
        """Skip commas; return whether another item follows, else skip the closing bracket."""
        next_one = self.peek()
        if next_one == ",":
            self.match(_COMMAS)
            after_item, next_one = False, self.peek()
        if next_one == closing:
            self.at += 1
            return False
        if after_item:
            self.fail_here(f"a comma or {closing!r}")
        return True

    def _key(self, depth: int) -> Key:
        next_one = self.peek()
        if next_one == "{":
            return self._as_key(self.object(depth + 1))
        if next_one in _STRINGS:
            return self.string(next_one)
        if (name := self.match(_NAME)) is not None:
            return name[0]
        number = self.number()
        if not isinstance(number, int):
            self.fail_here("a key")
        return number

    def _as_key(self, fields: Document) -> ObjectKey:
        flat: list[tuple[str, Scalar]] = []
        for name, value in fields.items():
            if not isinstance(name, str) or isinstance(value, (list, dict)):
                self.fail("an object that is a key and holds more than plain fields")
            flat.append((name, value))
        return tuple(flat)

    def _value(self, depth: int) -> Json:
        next_one = self.peek()
        if next_one == "{":
            return self.object(depth + 1)
        if next_one == "[":
            return self._array(depth + 1)
        if next_one in _STRINGS:
            return self.string(next_one)
        if (name := self.match(_NAME)) is not None:
            if name[0] not in _LITERALS:
                self.fail(f"the unknown word {name[0][:40]!r}")
            return _LITERALS[name[0]]
        number = self.number()
        if number is None:
            self.fail_here("a value")
        return number

    def number(self) -> int | float | None:
        found = self.match(_NUMBER)
        if found is None:
            return None
        if len(found[0]) > _DIGITS_MAX:
            self.fail(f"a number of {len(found[0])} characters")
        if found[1] is None and found[2] is None:
            return int(found[0])
        value = float(found[0])
        if not math.isfinite(value):
            self.fail(f"a number that is too large, {found[0]},")
        return value

    def fail(self, found: str) -> NoReturn:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        raise FormatError(
            f"not a document of RocketMQ: {found} at line {line}, column {column}",
            offset=self.at,
            fix="RocketMQ keeps the document before this one beside it, with the suffix .bak",
        )

    def fail_here(self, wanted: str) -> NoReturn:
        found = repr(self.text[self.at]) if self.at < len(self.text) else "the end of the text"
        self.fail(f"{found} instead of {wanted}")


def parse(text: str) -> Document:
    """Read JSON, or what fastjson also accepts: bare keys, objects as keys, single quotes, comments, extra commas.

    Fields keep their order; the last of equal keys counts. `FormatError`, whose ``offset`` is the first wrong
    character, if the text is not one object, or nested more than 64 deep.
    """
    plain = _parse_plain(text)
    return _parse_wide(text) if plain is None else plain


def _parse_plain(text: str) -> Document | None:
    """Read a document that is plain JSON; None for any other text, right or wrong."""
    if _ESCAPED_SURROGATE.search(text):
        return None
    try:
        root = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_float)
    except (ValueError, RecursionError):
        return None
    level: list[Any] = [root]
    for _ in range(DEPTH_MAX if isinstance(root, dict) else 0):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return cast("Document", root)
    return None


def _int(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(digits)
    return int(digits)


def _float(digits: str) -> float:
    if len(digits) > _DIGITS_MAX or not math.isfinite(float(digits)):
        raise ValueError(digits)
    return float(digits)


def _parse_wide(text: str) -> Document:
    """Read a document as fastjson does; see `parse`."""
    source = _Text(text)
    if source.peek() != "{":
        source.fail_here("an object")
    root = source.object(1)
    if source.peek():
        source.fail_here("the end of the text")
    return root


def render(document: Document) -> str:
    """Write a document in fastjson's pretty style; `FormatError` for what JSON or UTF-8 cannot hold."""
    # Integer keys are written with quotes, so that all documents without objects as keys are valid JSON. Brokers of all
    # versions read them as integers. Equal documents have equal texts.
    try:
        text = "".join(_pieces(document, 0))
        text.encode()
    except (ValueError, TypeError) as error:
        raise FormatError(f"this document cannot be written: {error}") from None
    return text


def _pieces(value: Json, depth: int) -> Iterator[str]:
    if depth > DEPTH_MAX:
        raise FormatError(f"this document cannot be written: it is nested more than {DEPTH_MAX} deep")
    if not isinstance(value, (dict, list)):
        yield _scalar(value)
        return
    items: list[tuple[str, Json]]
    if isinstance(value, dict):
        items = [(_key_text(key, value) + ":", value[key]) for key in sorted(value, key=_rank)]
    else:
        items = [("", item) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield opening
    for number, (lead, item) in enumerate(items):
        yield (",\n" if number else "\n") + "\t" * (depth + 1) + lead
        yield from _pieces(item, depth + 1)
    if items:
        yield "\n" + "\t" * depth
    yield closing


def _rank(key: Key) -> tuple[int, int, str]:
    if isinstance(key, tuple):
        return 2, 0, repr(key)
    # Integers by their value, quoted or not, so that what was written and read is written the same.
    text = str(key)
    if _INTEGER.fullmatch(text):
        return 0, int(text), "" if isinstance(key, int) else text
    return 1, 0, text


def _key_text(key: Key, beside: Document) -> str:
    if isinstance(key, tuple):
        return "{" + ",".join(f"{_scalar(name)}:{_scalar(value)}" for name, value in key) + "}"
    # Without quotes only where quotes would make one key of two.
    return str(key) if isinstance(key, int) and str(key) in beside else _scalar(str(key))


def _scalar(value: Scalar) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
