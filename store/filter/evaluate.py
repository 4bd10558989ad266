"""Evaluation of a SQL92 property filter over a batch of messages, column by column.

::

    properties ──► texts of the properties that the filter names ──► parsed where a number or TRUE stands opposite
                                                                         │
    And ─┬─ Compare ──► value: true, false or null of each row ◄─────────┤
         └─ In ───────► failed: rows where Java would throw  ◄───────────┘
                                    │
                     mask: true, and not failed

RocketMQ evaluates a filter message by message; whatever is not true, an exception included, does not match
(``ExpressionMessageFilter.isMatchedByCommitLog``). The rules of values are these:

* ``AND`` and ``OR`` stop at the first operand that decides. An exception to the right of it never happens, so
  ``failed`` of an operand counts only in rows that reach it.
* A comparison by size is null if either side is. ``a = b`` is true if both are null, null if only a is, and false if
  only b is.
* Text opposite a number is parsed as the number's type; opposite a property, by size, as a double. What cannot be
  parsed fails. Text on the left of a truth value is ``true`` in any case, or false; on the right of one it fails.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
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
from .java_numbers import doubles, integers, order_key

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


@dataclass(frozen=True, slots=True)
class Sql92Filter:
    """Compiled SQL92 filter: a `read.spec.PropertyFilter`.

    It is immutable, picklable, and safe in any number of threads. Where it is unpickled no parser is needed.

    Attributes
    ----------
    text
        The filter as it was written.
    condition
        The same, parsed. Filters of the same condition are equal.
    columns
        Names of the properties that it reads; no others are decoded.
    """

    text: str = field(compare=False)
    condition: Condition = field(repr=False)
    columns: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", property_names(self.condition))

    @classmethod
    def compile(cls, text: str) -> Self:
        """Compile a filter.

        Parameters
        ----------
        text
            An expression as in a RocketMQ subscription of type SQL92.

        Raises
        ------
        FilterSyntaxError
            As of `sql92.parse`.
        ConfigError
            If the package ``lark`` is not installed.
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
        """Evaluate the filter for a batch of messages.

        Parameters
        ----------
        properties
            (n,) rows. A string column per name in `columns`, null where a message lacks the property.

        Returns
        -------
        (n,) bool
            True where RocketMQ delivers the message. Its memory is its own.
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


_Operand = Property | Text | Number | _Verdict
"""Operand with its conditions evaluated."""


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
        return _Verdict(pc.if_else(known, _FALSE, _NULL))  # a truth value is no number

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
        """Compare as numbers; null where a side is null, failed where a side that is not is no number."""
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
