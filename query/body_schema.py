"""Schemas as DDL: ``id string, total decimal(10,2), items array<struct<sku: string, n: int>>``."""

import re
from functools import cache
from itertools import accumulate
from typing import Final

import pyarrow as pa
from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from segmentlog.store import ConfigError

from .body_columns import DEPTH_MAX

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
_GRAMMAR: Final = rf"""
start: column ("," column)*
column: (NAME | QUOTED) type -> field
inner: (NAME | QUOTED) ":"? type -> field
type: PLAIN -> plain
    | _DECIMAL ("(" NUMBER ("," NUMBER)? ")")? -> decimal
    | _ARRAY "<" type ">" -> array
    | _MAP "<" type "," type ">" -> map
    | _STRUCT "<" inner ("," inner)* ">" -> struct

NAME: /[^\W\d]\w*/
QUOTED: /`(?:[^`]|``)+`/
NUMBER: /\d{{1,9}}/
PLAIN: /(?:{"|".join(_TYPES)})\b/i
_DECIMAL: /(?:decimal|dec|numeric)\b/i
_ARRAY: /array\b/i
_MAP: /map\b/i
_STRUCT: /struct\b/i
%ignore /\s+/
"""
_MISSING: Final = {
    "NAME": "a name",
    "PLAIN": "a type, such as string, bigint, double, array<…> or struct<…>,",
    "NUMBER": "a number",
    "LESSTHAN": "`<`",
    "RPAR": "`)`",
    "COMMA": "`,`",
    "MORETHAN": "`>`",
}
"""Words for a token; of several that may follow, the first counts."""
_DIGITS_MAX: Final = 38
_SHOWN: Final = 40


@v_args(inline=True)
class _Builder(Transformer[Token, pa.Schema]):
    """Arrow's types of the parts of a text."""

    def start(self, *fields: pa.Field) -> pa.Schema:
        return pa.schema(fields)

    def field(self, name: Token, kind: pa.DataType) -> pa.Field:
        return pa.field(name[1:-1].replace("``", "`") if name.type == "QUOTED" else str(name), kind)

    def plain(self, name: Token) -> pa.DataType:
        return _TYPES[name.lower()]

    def decimal(self, precision: str = "10", scale: str = "0") -> pa.DataType:
        digits, after = int(precision), int(scale)
        if not 1 <= digits <= _DIGITS_MAX or after > digits:
            fix = f"A decimal has 1 to {_DIGITS_MAX} digits, and no more after the point"
            raise ConfigError(f"decimal({digits},{after}) does not exist", fix=fix)
        return pa.decimal128(digits, after)

    def array(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def map(self, key: pa.DataType, value: pa.DataType) -> pa.DataType:
        return pa.map_(key, value)

    def struct(self, *fields: pa.Field) -> pa.DataType:
        return pa.struct(fields)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", transformer=_Builder())


def parse_ddl(text: str, argument: str = "schema") -> pa.Schema:
    """Return the columns of a DDL text; `ConfigError` says where it is wrong."""
    depths = accumulate((each == "<") - (each == ">") for each in re.sub("`[^`]*`", "", text))
    if max(depths, default=0) > DEPTH_MAX:
        problem = f"{argument}: types are nested more than {DEPTH_MAX} deep"
        raise ConfigError(problem, fix="Read the inner part as a text")
    parsing = _parser().parse_interactive(text)
    try:
        parsing.exhaust_lexer()
        found: pa.Schema = parsing.feed_eof()
    except ConfigError as error:
        raise ConfigError(f"{argument}: {error.problem}", fix=error.fix) from None
    except (UnexpectedCharacters, UnexpectedToken) as error:
        is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        read = text[: None if is_end else error.pos_in_stream].rstrip()
        place = f"after {read[-_SHOWN:]!r}" if read else "at its start"
        wanted = next(words for name, words in _MISSING.items() if name in parsing.accepts())
        fix = "Write such as: id string, total decimal(10,2), items array<struct<sku: string, n: int>>"
        raise ConfigError(f"{argument}: {wanted} is missing {place}", fix=fix) from None
    return found
