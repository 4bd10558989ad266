r"""Schemas as text: DDL of Spark, as types of Arrow.

::

    id string, total decimal(10,2), items array<struct<sku: string, n: int>>, `unit price` double
    │          │                    └ types in angle brackets; in structs a colon may follow the name
    name       type, as Spark's `DataFrame.schema.toDDL()` writes it
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa

from segmentlog.store import ConfigError

_TOKEN: Final = re.compile(r"\s*(?:(?P<word>[^\W\d]\w*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)|(?P<mark>[<>(),:]))")
_TYPES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DIGITS_MAX: Final = 38


def parse_ddl(text: str, argument: str = "schema") -> pa.Schema:
    """Return the columns of a DDL text; `ConfigError` says where it is wrong."""
    return pa.schema(list(_Parser(text, argument).fields(end="")))


@dataclass
class _Parser:
    text: str
    argument: str
    at: int = 0
    kind: str = ""
    word: str = ""

    def __post_init__(self) -> None:
        self._next()

    def fields(self, *, end: str) -> Iterator[pa.Field]:
        """Yield fields up to an end mark, which is consumed."""
        while True:
            if self.kind not in {"word", "quoted"}:
                self._fail("a name")
            name = self.word.replace("``", "`")
            self._next()
            if end and self.word == ":":
                self._next()
            yield pa.field(name, self._type())
            if self.word == end and self.kind in {"mark", ""}:
                break
            self._expect(",")
        if end:
            self._next()

    def _type(self) -> pa.DataType:
        name = self.word.lower() if self.kind == "word" else ""
        if name in _TYPES:
            self._next()
            return _TYPES[name]
        if name not in {"array", "struct", "map", "decimal", "dec", "numeric"}:
            self._fail("a type, such as string, bigint, double, array<…> or struct<…>,")
        self._next()
        if name in {"decimal", "dec", "numeric"}:
            return self._decimal()
        self._expect("<")
        if name == "struct":
            return pa.struct(list(self.fields(end=">")))
        inner = self._type()
        if name == "map":
            self._expect(",")
            inner = pa.map_(inner, self._type())
        else:
            inner = pa.list_(inner)
        self._expect(">")
        return inner

    def _decimal(self) -> pa.DataType:
        if self.word != "(":
            return pa.decimal128(10, 0)
        self._next()
        precision, scale = self._number(), 0
        if self.word == ",":
            self._next()
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= _DIGITS_MAX or scale > precision:
            problem = f"{self.argument}: decimal({precision},{scale}) does not exist"
            raise ConfigError(problem, fix=f"A decimal has 1 to {_DIGITS_MAX} digits, and no more after the point")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if self.kind != "number":
            self._fail("a number")
        value = int(self.word)
        self._next()
        return value

    def _expect(self, mark: str) -> None:
        if self.kind != "mark" or self.word != mark:
            self._fail(f"`{mark}`")
        self._next()

    def _next(self) -> None:
        if not self.text[self.at :].strip():
            self.at, self.kind, self.word = len(self.text), "", ""
            return
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            self.kind = self.word = "?"
            self._fail("a name or a type")
        self.kind = found.lastgroup or ""
        self.word = found[self.kind]
        self.at = found.end()

    def _fail(self, wanted: str) -> NoReturn:
        read = self.text[: self.at].removesuffix(self.word).rstrip() if self.word != "?" else self.text[: self.at]
        place = f"after {read[-40:]!r}" if read else "at its start"
        fix = "Write such as: id string, total decimal(10,2), items array<struct<sku: string, n: int>>"
        raise ConfigError(f"{self.argument}: {wanted} is missing {place}", fix=fix)
