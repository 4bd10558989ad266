"""Evaluation of a SQL92 property filter over a batch of messages, column by column.

::

    properties ──► texts of the properties that the filter names ──► parsed where a number or TRUE is opposite
                                                                         │
    And ─┬─ Compare ──► value: true, false or null of each row ◄─────────┤
         └─ In ───────► failed: rows where Java would throw  ◄───────────┘
                                    │
                     mask: true, and not failed

    Integer, Long   [+-] digits of any script           no blanks, no point, no overflow
    Double          blanks [+-] ( digits [.digits] [e[+-]digits]  |  .digits [e[+-]digits]
                                | 0x hex digits [.] p [+-] digits | NaN | Infinity ) [fFdD] blanks

RocketMQ evaluates a filter message by message; whatever is not true, an exception included, does not match
(``ExpressionMessageFilter.isMatchedByCommitLog``). The rules of values are these:

* ``AND`` and ``OR`` stop at the first operand that decides. An exception to the right of it never happens, so
  ``failed`` of an operand counts only in rows that reach it.
* A comparison by size is null if either side is. ``a = b`` is true if both are null, null if only a is, and false if
  only b is.
* Text opposite a number is parsed as the number's type; opposite a property, by size, as a double. Text that cannot be
  parsed fails. Text on the left of a truth value is ``true`` in any case, or false; on the right of it, it fails.

Columns of plain numbers take one Arrow cast. Only a batch that has anything else in it is searched by patterns. Java:
``Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf``.
"""

import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConfigError
from ..format.message import Mask
from ..format.properties import TAGS
from .expressions import (
    And,
    Compare,
    Condition,
    Equal,
    In,
    IsNull,
    IsTrue,
    Match,
    Matches,
    Negative,
    Not,
    Number,
    NumberType,
    Operand,
    Or,
    Order,
    Property,
    Text,
    Truth,
    property_names,
)

Booleans = Any
"""A boolean array of all rows, or a boolean scalar where all rows have the same. (Arrow has no types for a checker.)"""

_NULL: Final = pa.scalar(None, pa.bool_())
_TRUE: Final = pa.scalar(True)  # noqa: FBT003 - a value, no switch
_FALSE: Final = pa.scalar(False)  # noqa: FBT003
_BITS: Final = {NumberType.INTEGER: 32, NumberType.LONG: 64}
_ORDERS: Final = {
    Order.LESS: (pc.less, lambda sign: sign < 0),
    Order.LESS_EQUAL: (pc.less_equal, lambda sign: sign <= 0),
    Order.GREATER: (pc.greater, lambda sign: sign > 0),
    Order.GREATER_EQUAL: (pc.greater_equal, lambda sign: sign >= 0),
}
_EQUAL: Final = (pc.equal, lambda sign: sign == 0)
_MATCHES: Final = {
    Match.CONTAINS: pc.match_substring,
    Match.STARTSWITH: pc.starts_with,
    Match.ENDSWITH: pc.ends_with,
}
_PLAIN_INTEGER: Final = (ord("-"), ord("9"))
"""First and last of the characters in ``-./0123456789``, of which Arrow reads integers as Java does, or not at all."""
_PLAIN_DOUBLE: Final = (ord("+"), ord("9"))
_LONG_DIGITS_MAX: Final = 19
_NON_ASCII: Final = 0x80
# Java looks at UTF-16 units, and so at no digit beyond U+FFFF.
_DIGITS: Final = {code: unicodedata.decimal(chr(code)) for code in range(_NON_ASCII, 1 << 16) if chr(code).isdecimal()}
_ASCII_DIGITS: Final = {code: str(digit) for code, digit in _DIGITS.items()}
_INTEGER: Final = r"\A[+-]?[0-9]+\z"
_INTEGER_OF_ANY_SCRIPT: Final = r"\A[+-]?\p{Nd}+\z"
_DECIMAL: Final = r"\A[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)\z"
_HEXADECIMAL: Final = r"\A[+-]?0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?\z"
_SUFFIX: Final = r"[fFdD]\z"
_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))  # what String.trim takes off


@dataclass(frozen=True, slots=True)
class Sql92Filter:
    """Compiled SQL92 filter: a `read.spec.PropertyFilter`.

    It is immutable, picklable, and safe in any number of threads. Where it is unpickled no parser is needed.
    """

    text: str = field(compare=False)  # as it was written
    condition: Condition = field(repr=False)  # the same, parsed: filters of the same condition are equal
    columns: frozenset[str] = field(init=False, repr=False, compare=False)  # the properties that it reads

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", property_names(self.condition))

    @classmethod
    def compile(cls, text: str) -> Self:
        """Compile an expression as in a RocketMQ subscription of type SQL92.

        Raises `FilterSyntaxError` as of `sql92.parse`, `ConfigError` if the package ``lark`` is not installed.
        """
        try:
            from .sql92 import parse  # noqa: PLC0415 - workers get compiled filters, and most queries have none
        except ModuleNotFoundError as error:
            if error.name != "lark":
                raise
            problem = "SQL92 filters need the package `lark`"
            raise ConfigError(problem, fix="Install it: pip install 'lark>=1.2'") from None
        return cls(text, parse(text))

    def tagged(self, any_of: frozenset[str]) -> Self:
        """Return this filter for messages with one of these tags."""
        condition = And((self.condition, In(Property(TAGS), any_of)))
        return type(self)(f"{self.text} (tags: {', '.join(sorted(any_of))})", condition)

    def mask(self, properties: pa.RecordBatch) -> Mask:
        """Evaluate the filter for (n,) messages: a string column per name in `columns`, null where a message lacks it.

        Returns (n,) bool in memory of its own, True where RocketMQ delivers the message.
        """
        value, failed = _Evaluation(properties).condition(self.condition)
        matched = pc.fill_null(value, fill_value=False)
        if failed is not None:
            matched = pc.and_not(matched, failed)
        if isinstance(matched, pa.Scalar):
            return np.full(properties.num_rows, matched.as_py())
        mask: Mask = matched.to_numpy(zero_copy_only=False)
        return mask


class _Verdict(NamedTuple):
    """Values of a condition, and the rows in which its evaluation fails; ``failed`` is None if none can."""

    value: Booleans
    failed: Booleans | None = None


_Operand = Property | Text | Number | _Verdict  # operand with its conditions evaluated


class _Evaluation:
    """Evaluation of one filter over one batch. A property is parsed once per type."""

    def __init__(self, properties: pa.RecordBatch) -> None:
        self._properties = properties
        self._numbers: dict[tuple[Property | Text, NumberType], pa.Int64Array | pa.Int64Scalar] = {}

    def condition(self, node: Condition) -> _Verdict:
        match node:
            case And(operands):
                return self._until(operands, pc.and_kleene, pc.invert)
            case Or(operands):
                return self._until(operands, pc.or_kleene, _itself)
            case Not(operand):
                value, failed = self.condition(operand)
                return _Verdict(pc.invert(value), failed)
            case Truth(value):
                return _Verdict(pa.scalar(value, pa.bool_()))
            case _:
                return self._test(node)

    def _test(self, node: IsTrue | Equal | Compare | IsNull | In | Matches) -> _Verdict:
        match node:
            case Equal(left, right):
                return self._equal(self._operand(left), self._operand(right))
            case Compare(left, order, right):
                return self._compare(self._operand(left), order, self._operand(right))
            case IsNull(operand):
                known = self._operand(operand)
                return _Verdict(pc.invert(self._present(known)), _failed(known))
            case In(operand, values):
                texts = self._text(operand)
                found = pc.is_in(texts, pa.array(values, pa.string()))
                return _Verdict(pc.if_else(pc.is_valid(texts), found, _NULL))
            case Matches():
                return self._matches(node)
            case IsTrue(operand):
                return _Verdict(pc.if_else(pc.is_valid(self._text(operand)), _FALSE, _NULL))

    def _until(
        self,
        operands: tuple[Condition, ...],
        joined: Callable[[Booleans, Booleans], Booleans],
        decided: Callable[[Booleans], Booleans],
    ) -> _Verdict:
        """Join operands from left to right; one that fails counts in rows that no operand before it decided."""
        value, failed = self.condition(operands[0])
        for operand in operands[1:]:
            verdict = self.condition(operand)
            if verdict.failed is not None:
                reached = pc.invert(pc.fill_null(decided(value), fill_value=False))
                failed = _either(failed, pc.and_(verdict.failed, reached))
            value = joined(value, verdict.value)
        return _Verdict(value, failed)

    def _operand(self, node: Operand) -> _Operand:
        match node:
            case Property() | Text() | Number():
                return node
            case Negative(operand):
                negated = self._operand(operand)
                if isinstance(negated, Number):
                    return Number(-negated.value, negated.type)
                return _Verdict(_NULL, _failed(negated))
            case _:
                return self.condition(node)

    def _present(self, operand: _Operand) -> Booleans:
        match operand:
            case Property():
                return pc.is_valid(self._text(operand))
            case _Verdict(value):
                return pc.is_valid(value)
            case _:
                return _TRUE

    def _text(self, node: Property | Text) -> pa.StringArray | pa.StringScalar:
        if isinstance(node, Text):
            return pa.scalar(node.value, pa.string())
        return self._properties.column(node.name)

    def _number(self, node: Property | Text, type_: NumberType) -> pa.Int64Array | pa.Int64Scalar:
        """Text as a number of a type, null where it is null or no such number; doubles as their order keys."""
        numbers = self._numbers.get((node, type_))
        if numbers is None:
            texts = self._text(node)
            column = pa.array([texts.as_py()], pa.string()) if isinstance(texts, pa.Scalar) else texts
            parsed = doubles(column) if type_ is NumberType.DOUBLE else integers(column, _BITS[type_])
            numbers = self._numbers[node, type_] = parsed[0] if isinstance(texts, pa.Scalar) else parsed
        return numbers

    def _equal(self, left: _Operand, right: _Operand) -> _Verdict:
        value, failed = self._equal_where_known(left, right)
        if isinstance(right, Property | _Verdict):
            # The nulls of RocketMQ's equality. (A constant on the right has none, and then `value` is right already.)
            known = self._present(right)
            value = pc.if_else(self._present(left), pc.if_else(known, value, _FALSE), pc.if_else(known, _NULL, _TRUE))
        for operand in (left, right):
            failed = _either(failed, _failed(operand))
        return _Verdict(value, failed)

    def _equal_where_known(self, left: _Operand, right: _Operand) -> _Verdict:
        """Compare by ``=`` where neither side is null; null elsewhere, and nothing fails there."""
        if not isinstance(left, _Verdict) and not isinstance(right, _Verdict):
            if isinstance(left, Number) or isinstance(right, Number):
                return self._ordered(left, right, *_EQUAL)
            return _Verdict(pc.equal(self._text(left), self._text(right)))
        match left, right:
            case (Property() | Text(), _Verdict(value)):
                return _Verdict(pc.equal(pc.equal(pc.ascii_lower(self._text(left)), "true"), value))
            case (_Verdict(value), _Verdict(other)):
                return _Verdict(pc.equal(value, other))
            case (_Verdict(value), Property() | Text()):
                # Java casts the truth value to text, and fails.
                return _Verdict(_NULL, pc.and_(pc.is_valid(value), self._present(right)))
        known = pc.and_(self._present(left), self._present(right))
        return _Verdict(pc.if_else(known, _FALSE, _NULL))  # a truth value never equals a number

    def _compare(self, left: _Operand, order: Order, right: _Operand) -> _Verdict:
        # By size there are no texts and no conditions; a verdict is null here, of a minus before something else.
        if isinstance(left, _Verdict):
            return _Verdict(_NULL, left.failed)
        if isinstance(right, _Verdict):
            failed = None if right.failed is None else pc.and_(right.failed, self._present(left))
            return _Verdict(_NULL, failed)
        return self._ordered(left, right, *_ORDERS[order])

    def _ordered(
        self,
        left: Property | Text | Number,
        right: Property | Text | Number,
        compared: Callable[[Any, Any], Booleans],
        wanted: Callable[[int], bool],
    ) -> _Verdict:
        """Compare as numbers; null where a side is null, failed where a side is not a number."""
        if isinstance(left, Number) and isinstance(right, Number):
            return _Verdict(pa.scalar(wanted(left.compare(right))))
        type_ = next((side.type for side in (left, right) if isinstance(side, Number)), NumberType.DOUBLE)
        sides = [_key(side) if isinstance(side, Number) else self._number(side, type_) for side in (left, right)]
        value = compared(*sides)
        known = pc.and_(self._present(left), self._present(right))
        failed = pc.and_not(known, pc.is_valid(value))
        return _Verdict(value, failed)

    def _matches(self, node: Matches) -> _Verdict:
        if not node.text:
            return _Verdict(_FALSE)  # RocketMQ does not even look at the operand
        operand = self._operand(node.operand)
        if not isinstance(operand, Property | Text):
            return _Verdict(_FALSE, _failed(operand))
        found = _MATCHES[node.match](self._text(operand), node.text)
        return _Verdict(pc.fill_null(pc.invert(found) if node.negated else found, fill_value=False))


def _failed(operand: _Operand) -> Booleans | None:
    return operand.failed if isinstance(operand, _Verdict) else None


def _itself(value: Booleans) -> Booleans:
    return value


def _either(one: Booleans | None, other: Booleans | None) -> Booleans | None:
    if one is None or other is None:
        return other if one is None else one
    return pc.or_(one, other)


def _key(number: Number) -> pa.Int64Scalar:
    return pa.scalar(order_key(number.value) if number.type is NumberType.DOUBLE else number.value, pa.int64())


def integers(texts: pa.StringArray, bits: int) -> pa.Int64Array:
    """Parse a column as ``Integer.valueOf`` (32 bits) or ``Long.valueOf`` (64) does; null where Java throws."""
    if _within(texts, _PLAIN_INTEGER):
        try:
            return _in_range(pc.cast(texts, pa.int64()), bits)
        except pa.ArrowInvalid:
            pass  # one of them is not a number, or too large
    return _integers_by_pattern(_with_ascii_digits(texts), bits)


def _in_range(numbers: pa.Int64Array, bits: int) -> pa.Int64Array:
    if bits == np.iinfo(np.int64).bits:
        return numbers
    limit = 1 << (bits - 1)
    least_most = pc.min_max(numbers)
    if least_most["min"].is_valid and (least_most["min"].as_py() < -limit or least_most["max"].as_py() >= limit):
        fits = pc.and_(pc.greater_equal(numbers, -limit), pc.less(numbers, limit))
        return pc.if_else(fits, numbers, pa.scalar(None, pa.int64()))
    return numbers


def _integers_by_pattern(texts: pa.StringArray, bits: int) -> pa.Int64Array:
    signed = _only(texts, pc.match_substring_regex(texts, _INTEGER))
    digits = pc.ascii_ltrim(pc.ascii_ltrim(signed, characters="+-"), characters="0")
    length = pc.binary_length(digits)
    digits = pc.if_else(pc.equal(length, 0), "0", digits)
    digits = _only(digits, pc.less_equal(length, _LONG_DIGITS_MAX))  # longer digits do not fit a long
    magnitude = pc.fill_null(pc.cast(digits, pa.uint64()), 0).to_numpy(zero_copy_only=False)
    negative = pc.fill_null(pc.starts_with(signed, "-"), fill_value=False).to_numpy(zero_copy_only=False)
    fits = magnitude <= np.uint64((1 << (bits - 1)) - 1) + negative.astype(np.uint64)
    numbers = np.where(negative, -magnitude.view(np.int64), magnitude.view(np.int64))  # 2**63 is its own negative
    return _only(pa.array(numbers), pc.and_(pc.is_valid(digits), pa.array(fits)))


def _with_ascii_digits(texts: pa.StringArray) -> pa.StringArray:
    """Replace decimal digits of other scripts in integers, which Java takes as well."""
    data = _bytes(texts)
    if data.size == 0 or int(data.max()) < _NON_ASCII:
        return texts
    chosen = pc.fill_null(pc.match_substring_regex(texts, _INTEGER_OF_ANY_SCRIPT), fill_value=False)
    if not chosen.true_count:
        return texts
    joined = "\n".join(texts.filter(chosen).to_pylist())
    return pc.replace_with_mask(texts, chosen, pa.array(joined.translate(_ASCII_DIGITS).split("\n"), pa.string()))


def doubles(texts: pa.StringArray) -> pa.Int64Array:
    """Parse a column as ``Double.valueOf`` does, to `order_key`s; null where Java throws."""
    if _within(texts, _PLAIN_DOUBLE):
        try:
            return _order_keys(pc.cast(texts, pa.float64()))
        except pa.ArrowInvalid:
            pass
    trimmed = pc.utf8_trim(texts, characters=_BLANKS)
    parsed = _parsed(_only(trimmed, pc.match_substring_regex(trimmed, _DECIMAL)))
    hexadecimal = pc.fill_null(pc.match_substring_regex(trimmed, _HEXADECIMAL), fill_value=False)
    if pc.any(hexadecimal).as_py():
        parsed = pc.replace_with_mask(parsed, hexadecimal, _hexadecimals(trimmed.filter(hexadecimal)))
    return _order_keys(parsed)


def _parsed(decimals: pa.StringArray) -> pa.DoubleArray:
    numerals = pc.replace_substring_regex(decimals, _SUFFIX, "")
    try:
        return pc.cast(numerals, pa.float64())
    except (
        pa.ArrowInvalid
    ):  # some releases of Arrow refuse too large doubles; in Java they are infinite. Drop when pyarrow 18 goes
        floats = np.array(pc.fill_null(numerals, "0").to_pylist(), np.str_).astype(np.float64)
        return _only(pa.array(floats), pc.is_valid(numerals))


def _hexadecimals(texts: pa.StringArray) -> pa.DoubleArray:
    """Parse hexadecimal doubles, which hardly any producer writes: each different one by itself."""
    encoded = pc.dictionary_encode(pc.replace_substring_regex(texts, _SUFFIX, ""))
    return pa.array(map(_hexadecimal, encoded.dictionary.to_pylist()), pa.float64()).take(encoded.indices)


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf" if text[0] == "-" else "inf")


def order_key(number: float) -> int:
    """Return an integer that orders as ``Double.compareTo``: -0.0 is less than 0.0, NaN the greatest."""
    return int(_keys(np.array([number], np.float64))[0])


def _order_keys(numbers: pa.DoubleArray) -> pa.Int64Array:
    return _only(pa.array(_keys(pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False))), pc.is_valid(numbers))


def _keys(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    # Negative doubles count their magnitude from the sign on: turned round, all bits but the sign's.
    return bits ^ ((bits >> 63) & np.int64(sys.maxsize))


def _only(values: pa.Array, wanted: pa.BooleanArray) -> pa.Array:
    return values if wanted.true_count == len(values) else pc.if_else(wanted, values, pa.scalar(None, values.type))


def _within(texts: pa.StringArray, bounds: tuple[int, int]) -> bool:
    """Return whether all characters of a column are in a range."""
    data = _bytes(texts)
    return data.size == 0 or (bounds[0] <= int(data.min()) and int(data.max()) <= bounds[1])


def _bytes(texts: pa.StringArray) -> npt.NDArray[np.uint8]:
    _, offsets, data = texts.buffers()
    if data is None or len(texts) == 0:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset)
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
