"""Expressions of a SQL92 property filter, as RocketMQ's parser builds them.

A *condition* is true, false, null or an evaluation error. An *operand* is a property (text or null), a constant, a
negated operand, or a condition. Parentheses and unary plus leave no trace.

As in RocketMQ, ``<>`` is ``Not(Equal)``, ``BETWEEN`` an ``And`` of two `Compare`, ``NOT BETWEEN`` an ``Or``. Apart from
the parser, so that workers unpickle a filter without loading it.
"""

from dataclasses import dataclass
from enum import Enum, auto


class NumberType(Enum):
    """Java type of a numeric literal. A property that is compared with a literal is parsed as its type."""

    INTEGER = auto()  # 32 bits: every literal without point and exponent that fits, with or without ``L``
    LONG = auto()  # 64 bits
    DOUBLE = auto()


class Order(Enum):
    """Operators of a comparison by size."""

    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


class Match(Enum):
    """Operators of a search for text, in RocketMQ since 5.1.3."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Property:
    """A property by name (``PropertyExpression``). Its value is text, or null where a message lacks it."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal without its quotes (``ConstantExpression``)."""

    value: str


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric literal (``ConstantExpression``)."""

    value: int | float
    type: NumberType

    def compare(self, other: "Number") -> int:
        """Return -1, 0 or 1, as both are compared once the narrower has the wider type."""
        left, right = self.value, other.value
        if NumberType.DOUBLE in {self.type, other.type}:
            left, right = float(left), float(right)
        return (left > right) - (left < right)


@dataclass(frozen=True, slots=True)
class Truth:
    """``TRUE``, ``FALSE`` or ``NULL`` (``BooleanConstantExpression``)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Negative:
    """Unary minus. It is null for everything but numbers: properties are text."""

    operand: "Operand"


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A property in place of a condition: null where it is missing, else false, even if its text is ``true``."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """Negation with three values: null stays null."""

    operand: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    """Two or more conditions from left to right, up to the first that is false."""

    operands: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more conditions from left to right, up to the first that is true."""

    operands: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Equal:
    """``=``. Its nulls are RocketMQ's own: see `evaluate`."""

    left: "Operand"
    right: "Operand"


@dataclass(frozen=True, slots=True)
class Compare:
    """Comparison by size, of numbers and properties only."""

    left: "Operand"
    order: Order
    right: "Operand"


@dataclass(frozen=True, slots=True)
class IsNull:
    """``IS NULL``: never null itself."""

    operand: "Operand"


@dataclass(frozen=True, slots=True)
class In:
    """Equality of a property with one of some texts; null where the property is missing."""

    operand: Property
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Matches:
    """A search in text. An operand that is not text, null included, is false, also with ``NOT``."""

    operand: "Operand"
    match: Match
    text: str
    negated: bool


Condition = Truth | IsTrue | Not | And | Or | Equal | Compare | IsNull | In | Matches
Operand = Property | Text | Number | Negative | Condition


def property_names(expression: Operand) -> frozenset[str]:
    """Names of all properties that an expression reads."""
    match expression:
        case Property(name):
            return frozenset((name,))
        case Text() | Number() | Truth():
            return frozenset()
        case And(operands) | Or(operands):
            return frozenset().union(*map(property_names, operands))
        case Equal(left, right) | Compare(left, _, right):
            return property_names(left) | property_names(right)
        case _:
            return property_names(expression.operand)
