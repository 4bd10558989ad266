"""RocketMQ's configuration documents: JSON as fastjson writes and reads it, which is wider than JSON.

::

    {
      "offsetTable":{
        "OrderTopic@groupA":{0:12,1:30            integer keys without quotes
        },
        {"brokerName":"a","queueId":0}:7,         objects as keys (offsets that clients keep)
      },                                          commas too many
    }

Plain JSON is read by Python's own parser, which is faster. The rest is parsed in one pass with a stack of its own. It
is linear in the text, and a document of a million brackets is an error that does not end the interpreter.
`broker_config` reads the meaning. RocketMQ: ``ConfigManager``, fastjson's ``DefaultJSONParser`` and ``PrettyFormat``.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, cast

from ..errors import FormatError

Scalar: TypeAlias = str | int | float | bool | None
ObjectKey: TypeAlias = tuple[tuple[str, Scalar], ...]
"""An object that is a key: its fields in their order."""
Key: TypeAlias = str | int | ObjectKey
"""A quoted key is a str, a bare number an int: ``"5"`` and ``5`` are two keys."""
Json: TypeAlias = "Scalar | list[Json] | dict[Key, Json]"
Document: TypeAlias = dict[Key, Json]

DEPTH_MAX: Final = 64
"""RocketMQ's own documents go 6 deep."""
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
    """Choose between ``FILE`` and ``FILE.bak`` as a broker does when it starts, and parse.

    Parameters
    ----------
    file, backup
        What the two hold; None where there is no such file.

    Returns
    -------
    Loaded
        Of ``file``; of ``backup`` where ``file`` is missing, empty or cannot be parsed; an empty document where neither
        is there.

    Raises
    ------
    FormatError
        If the text cannot be parsed. A broker with a damaged file and without its backup starts with an empty document,
        and forgets every offset; a reader should report that.
    """
    problem: FormatError | None = None
    for data, origin in ((file, Origin.FILE), (backup, Origin.BACKUP)):
        if not data:
            continue
        try:
            # Java replaces what is not UTF-8, too.
            return Loaded(parse(data.decode("utf-8", "replace")), origin)
        except FormatError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return Loaded({}, Origin.NOTHING)


@dataclass(slots=True)
class _Frame:
    """An object or array that is not closed yet."""

    container: Document | list[Json]
    is_key: bool = False
    key: Key | None = None  # read, its value is still to come
    full: bool = False  # a value was read: a comma or the end has to follow


class _Text:
    """A document and how far it is read."""

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
            f"this is no document of RocketMQ's: {found} at line {line}, column {column}",
            offset=self.at,
            fix="RocketMQ keeps the document before this one beside it, with the suffix .bak",
        )

    def fail_here(self, wanted: str) -> NoReturn:
        found = repr(self.text[self.at]) if self.at < len(self.text) else "the end of the text"
        self.fail(f"{found} instead of {wanted}")


def parse(text: str) -> Document:
    """Read a document.

    Parameters
    ----------
    text
        JSON, or what fastjson also takes: keys that are bare numbers, names or objects, single quotes, commas too
        many, comments.

    Returns
    -------
    dict
        Its fields in their order; the last of equal keys counts. Every string can be written as UTF-8.

    Raises
    ------
    FormatError
        If the text is not one object, or nested more than 64 deep. It has line, column and, as ``offset``, the first
        wrong character.
    """
    plain = _parse_plain(text)
    return _parse_wide(text) if plain is None else plain


def _parse_plain(text: str) -> Document | None:
    """Read a document that is plain JSON, some twenty times as fast; None for any other, be it right or wrong."""
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
    source.at += 1
    root: Document = {}
    stack = [_Frame(root)]
    while stack:
        opened = _step(source, stack)
        if opened is not None:
            if len(stack) >= DEPTH_MAX:
                source.fail(f"nesting of more than {DEPTH_MAX} brackets")
            stack.append(opened)
    if source.peek():
        source.fail_here("the end of the text")
    return root


def _step(source: _Text, stack: list[_Frame]) -> _Frame | None:
    """Read a key, a value or the end of the innermost bracket; return the bracket that was opened."""
    frame = stack[-1]
    container = frame.container
    next_one = source.peek()
    if isinstance(container, dict) and frame.key is not None:
        return _value(source, frame, next_one)
    if next_one == ",":
        source.match(_COMMAS)
        frame.full = False
        next_one = source.peek()
    closing = "}" if isinstance(container, dict) else "]"
    if next_one == closing:
        source.at += 1
        stack.pop()
        if frame.is_key:
            stack[-1].key = _object_key(source, container)
            _colon(source)
        return None
    if frame.full:
        source.fail_here(f"a comma or {closing!r}")
    if isinstance(container, list):
        return _value(source, frame, next_one)
    if next_one == "{":
        source.at += 1
        return _Frame({}, is_key=True)
    frame.key = _key(source, next_one)
    _colon(source)
    return None


def _key(source: _Text, next_one: str) -> Key:
    if next_one in _STRINGS:
        return source.string(next_one)
    if (name := source.match(_NAME)) is not None:
        return name[0]
    number = source.number()
    if not isinstance(number, int):
        source.fail_here("a key")
    return number


def _object_key(source: _Text, fields: Document | list[Json]) -> ObjectKey:
    assert isinstance(fields, dict)
    flat: list[tuple[str, Scalar]] = []
    for name, value in fields.items():
        if not isinstance(name, str) or isinstance(value, (list, dict)):
            source.fail("an object that is a key and holds more than plain fields")
        flat.append((name, value))
    return tuple(flat)


def _colon(source: _Text) -> None:
    if source.peek() != ":":
        source.fail_here("a colon")
    source.at += 1


def _value(source: _Text, frame: _Frame, next_one: str) -> _Frame | None:
    """Read a value and put it where it belongs; a bracket is put there open."""
    value: Json
    opened: _Frame | None = None
    if next_one in {"{", "["}:
        source.at += 1
        value = {} if next_one == "{" else []
        opened = _Frame(value)
    elif next_one in _STRINGS:
        value = source.string(next_one)
    elif (name := source.match(_NAME)) is not None:
        if name[0] not in _LITERALS:
            source.fail(f"the unknown word {name[0][:40]!r}")
        value = _LITERALS[name[0]]
    else:
        number = source.number()
        if number is None:
            source.fail_here("a value")
        value = number
    if isinstance(frame.container, list):
        frame.container.append(value)
    else:
        assert frame.key is not None
        frame.container[frame.key] = value
        frame.key = None
    frame.full = True
    return opened


def render(document: Document) -> str:
    """Write a document in fastjson's pretty style: tabs, keys in order, no blanks.

    Integer keys are written with quotes, so that all documents without objects as keys are valid JSON. Brokers of all
    versions read them as integers. Equal documents have equal texts.

    Raises
    ------
    FormatError
        If it is nested too deeply, or holds a number or text that JSON or UTF-8 has no way to write.
    """
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
