r"""SQL92 property filters: the grammar of RocketMQ 5.3.3, and the refusals of its parser.

::

    condition    conjunction (OR conjunction)*                                             loosest
    conjunction  equality (AND equality)*
    equality     comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison   unary ( (> | >= | < | <=) unary  |  [NOT] BETWEEN unary AND unary
                       | [NOT] IN ('…', …)  |  [NOT] (CONTAINS | STARTSWITH | ENDSWITH) '…' )*
    unary        + unary  |  - unary  |  NOT unary  |  literal  |  name  |  ( condition )   tightest

    name     [A-Za-z_$][A-Za-z0-9_$]*, as it is written; keywords in any case
    literal  '…' with '' for a quote    0    12    12L    1.5    1.    .5    1e5    TRUE    FALSE    NULL
    between  blanks    -- to the end of a line    /* … */

RocketMQ: ``SelectorParser.jj`` and the checks of ``ComparisonExpression.create…``. Its parser stops at the first token
that cannot continue an expression and ignores the rest: ``a = 1 AD b = 2`` filters by ``a = 1``. That is an error here,
and the only difference.
"""

from functools import cache
from typing import Final, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args
from lark.parsers.lalr_interactive_parser import InteractiveParser

from ..errors import FilterSyntaxError
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
)

_GRAMMAR: Final = r"""
start: condition
?condition: conjunction | conjunction (OR conjunction)+ -> either
?conjunction: equality | equality (AND equality)+ -> both
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> unequal
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison ORDER unary -> compare
    | comparison MATCH STRING -> matches
    | comparison NOT MATCH STRING -> not_matches
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN "(" STRING ("," STRING)* ")" -> within
    | comparison NOT IN "(" STRING ("," STRING)* ")" -> not_within
?unary: "+" unary
    | MINUS unary -> negative
    | NOT unary -> negation
    | primary
?primary: STRING -> text
    | INTEGER -> integer
    | FLOAT -> float
    | (TRUE | FALSE | NULL) -> truth
    | NAME -> name
    | "(" condition ")"

%declare NOT AND OR BETWEEN IN TRUE FALSE NULL IS MATCH
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
STRING: /'(?:''|[^'])*'/
FLOAT.1: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
INTEGER: /0|[1-9][0-9]*[lL]?/
ORDER: />=|<=|>|<(?!>)/
MINUS: "-"
UNEQUAL: "<>"
BLANKS: /[ \t\n\r\f]+/
LINE_COMMENT.1: /--[^\n\r]*(?:\r\n|\n|\r)/
BLOCK_COMMENT: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore BLANKS
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
_KEYWORDS: Final = {word: word for word in ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")} | {
    match.value: "MATCH" for match in Match
}
_OPERAND: Final = "a property or a literal"
_OPERATOR: Final = "an operator"
_EXPECTED: Final = {
    **dict.fromkeys(("NAME", "INTEGER", "FLOAT", "TRUE", "FALSE", "MINUS", "PLUS", "LPAR"), _OPERAND),
    **dict.fromkeys(("ORDER", "EQUAL", "UNEQUAL", "IS"), _OPERATOR),
    "MATCH": "CONTAINS, STARTSWITH, ENDSWITH",
    "STRING": "a string in single quotes",
    "RPAR": "`)`",
    "COMMA": "a comma",
    "$END": "the end",
}
_PART_OF: Final = {_OPERAND: {"NOT", "NULL", "STRING"}, _OPERATOR: {"NOT", "BETWEEN", "IN", "MATCH"}}
_HINTS: Final = {
    "'": "A string ends with a single quote; within it a quote is written twice",
    '"': "Write strings in single quotes",
    "!": "Write <> for unequal",
    "/": "A comment ends with */",
    "+": "SQL92 filters of RocketMQ have no arithmetic",
    "-": "SQL92 filters of RocketMQ have no arithmetic",
    "LIKE": "Write CONTAINS, STARTSWITH or ENDSWITH in place of LIKE",
}
_EXAMPLE: Final = "Correct it there; a filter is such as amount > 100 AND region IN ('eu', 'us')"
# RocketMQ reads a line comment without a line end as minus signs.
_OPEN_COMMENT: Final = "--"
_LONG_MAX: Final = (1 << 63) - 1
_LONG_DIGITS_MAX: Final = 19
_INTEGER_MAX: Final = (1 << 31) - 1
_DEPTH_MAX: Final = 100
_SHOWN_BEFORE: Final = 40
_SHOWN_MAX: Final = 80


def parse(text: str) -> Condition:
    """Parse a SQL92 filter of a RocketMQ subscription.

    `FilterSyntaxError` if RocketMQ refuses the text or ignores a part of it, or for a nesting of more than 100.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _error(text, error.start, text[error.start], "is not a Unicode character") from None
    interactive = _parser().parse_interactive(text)
    try:
        interactive.exhaust_lexer()
        part: _Node = interactive.feed_eof()
    except _RefusedError as error:
        raise _error(text, error.start, text[error.start : error.stop], error.reason) from None
    except UnexpectedCharacters as error:
        start = error.pos_in_stream or 0
        raise _unexpected(text, start, text[start], interactive) from None
    except UnexpectedToken as error:
        if error.token.type == "$END":
            problem = f"SQL92 filter {_shown(text)} ends in place of {_expected(interactive)}"
            raise FilterSyntaxError(problem, position=len(text), fix=_EXAMPLE) from None
        return _ended_early(text, error.token, interactive)
    assert not isinstance(part.node, Property | Text | Number | Negative)
    return part.node


def _ended_early(text: str, token: Token, interactive: InteractiveParser) -> Condition:
    """Refuse a token that continues no expression, unless all from there on is a comment."""
    start = token.start_pos or 0
    if "$END" not in interactive.accepts():
        raise _unexpected(text, start, token, interactive)
    condition = parse(text[:start])  # what RocketMQ filters by; its own errors come first
    if text.startswith(_OPEN_COMMENT, start):
        return condition
    raise _unexpected(text, start, token, interactive, "RocketMQ ignores the text from there on: correct or remove it.")


def _unexpected(
    text: str, start: int, found: str, interactive: InteractiveParser, fix: str | None = None
) -> FilterSyntaxError:
    hint = _HINTS.get(found.upper())
    reason = f"is unexpected, in place of {_expected(interactive)}"
    return _error(text, start, found, reason, " ".join(filter(None, (fix, hint))) or None)


def _error(text: str, start: int, found: str, reason: str, fix: str | None = None) -> FilterSyntaxError:
    first = max(0, start - _SHOWN_BEFORE)
    problem = f"SQL92 filter {_shown(text, first)}: {_shown(found)} at character {start + 1} {reason}"
    return FilterSyntaxError(problem, position=start, fix=fix or _EXAMPLE)


def _shown(text: str, first: int = 0) -> str:
    piece = text[first : first + _SHOWN_MAX]
    if not piece.isprintable():
        piece = ascii(piece)[1:-1]
    return f"`{'…' if first else ''}{piece}{'…' if first + _SHOWN_MAX < len(text) else ''}`"


def _expected(interactive: InteractiveParser) -> str:
    """Name the tokens that are accepted next, in a few words."""
    names = interactive.accepts()
    words = {_EXPECTED.get(name, name) for name in names}
    for general, members in _PART_OF.items():
        if general in words:
            words = {_EXPECTED.get(name, name) for name in names - members}
            names = names - members
    *most, last = sorted(words, key=lambda word: (word == _EXPECTED["$END"], word[0].isupper(), word))
    return f"{', '.join(most)} or {last}" if most else last


class _Node(NamedTuple):
    """A parsed part of a filter: its expression, where it stands in the text, and how deep expressions are nested."""

    node: Operand
    start: int
    stop: int
    depth: int


class _RefusedError(Exception):
    """A grammatical part that RocketMQ refuses."""

    def __init__(self, start: int, stop: int, reason: str) -> None:
        super().__init__(start, stop, reason)
        self.start, self.stop, self.reason = start, stop, reason


@cache
def _parser() -> Lark:
    def keyword(token: Token) -> Token:
        return token.update(type=_KEYWORDS.get(token.upper(), token.type))

    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), lexer_callbacks={"NAME": keyword})


def _part(node: Operand, *children: _Node | Token) -> _Node:
    first, last = children[0], children[-1]
    start = first.start if isinstance(first, _Node) else first.start_pos or 0
    stop = last.stop if isinstance(last, _Node) else last.end_pos or 0
    depth = 1 + max((child.depth for child in children if isinstance(child, _Node)), default=0)
    if depth > _DEPTH_MAX:
        raise _RefusedError(start, stop, f"is nested more than {_DEPTH_MAX} deep")
    return _Node(node, start, stop, depth)


def _refused(part: _Node, reason: str) -> _RefusedError:
    return _RefusedError(part.start, part.stop, reason)


def _condition(part: _Node) -> Condition:
    """Convert a part to a condition (``asBooleanExpression``)."""
    match part.node:
        case Property():
            return IsTrue(part.node)
        case Text() | Number() | Negative():
            raise _refused(part, "is not a condition")
        case condition:
            return condition


def _sized(part: _Node) -> Operand:
    """Check an operand of a comparison by size (``checkLessThanOperand``)."""
    if isinstance(part.node, Property | Number | Negative):
        return part.node
    raise _refused(part, "is neither number nor property: nothing else is compared by size")


def _equated(left: _Node, right: _Node) -> Equal:
    for part in (left, right):
        if part.node == Truth(None):
            raise _refused(part, "equals nothing: write IS NULL or IS NOT NULL")
    if isinstance(left.node, Truth) and isinstance(right.node, Text | Number):
        raise _refused(right, "is not compared with TRUE or FALSE")
    return Equal(left.node, right.node)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


@v_args(inline=True)
class _Builder(Transformer[Token, _Node]):
    """Expressions of the grammar's rules, each checked as RocketMQ's parser does when it makes one."""

    def start(self, part: _Node) -> _Node:
        return _part(_condition(part), part)

    def either(self, *children: _Node | Token) -> _Node:
        return _part(Or(tuple(_condition(child) for child in children if isinstance(child, _Node))), *children)

    def both(self, *children: _Node | Token) -> _Node:
        return _part(And(tuple(_condition(child) for child in children if isinstance(child, _Node))), *children)

    def equal(self, left: _Node, right: _Node) -> _Node:
        return _part(_equated(left, right), left, right)

    def unequal(self, left: _Node, right: _Node) -> _Node:
        return _part(Not(_equated(left, right)), left, right)

    def is_null(self, left: _Node, *words: Token) -> _Node:
        return _part(IsNull(left.node), left, *words)

    def is_not_null(self, left: _Node, *words: Token) -> _Node:
        return _part(Not(IsNull(left.node)), left, *words)

    def compare(self, left: _Node, order: Token, right: _Node) -> _Node:
        return _part(Compare(_sized(left), Order(order), _sized(right)), left, right)

    def matches(self, left: _Node, match: Token, text: Token) -> _Node:
        return _part(Matches(left.node, Match(match.upper()), _unquoted(text), negated=False), left, text)

    def not_matches(self, left: _Node, _not: Token, match: Token, text: Token) -> _Node:
        return _part(Matches(left.node, Match(match.upper()), _unquoted(text), negated=True), left, text)

    def between(self, left: _Node, _between: Token, low: _Node, _and: Token, high: _Node) -> _Node:
        value, least, most = _sized(left), _sized(low), _sized(high)
        if isinstance(least, Number) and isinstance(most, Number) and most.compare(least) < 0:
            raise _refused(high, "is less than the lower bound of BETWEEN")
        bounds = Compare(value, Order.GREATER_EQUAL, least), Compare(value, Order.LESS_EQUAL, most)
        return _part(And(bounds), left, low, high)

    def not_between(self, left: _Node, _not: Token, _between: Token, low: _Node, _and: Token, high: _Node) -> _Node:
        value = _sized(left)
        return _part(
            Or((Compare(value, Order.LESS, _sized(low)), Compare(value, Order.GREATER, _sized(high)))), left, low, high
        )

    def within(self, left: _Node, *tokens: Token) -> _Node:
        if not isinstance(left.node, Property):
            raise _refused(left, "is not a property: IN takes nothing else on its left")
        values = frozenset(_unquoted(token) for token in tokens if token.type == "STRING")
        return _part(In(left.node, values), left, *tokens)

    def not_within(self, left: _Node, *tokens: Token) -> _Node:
        part = self.within(left, *tokens)
        return part._replace(node=Not(_condition(part)))

    def negative(self, minus: Token, operand: _Node) -> _Node:
        return _part(Negative(operand.node), minus, operand)

    def negation(self, word: Token, operand: _Node) -> _Node:
        return _part(Not(_condition(operand)), word, operand)

    def name(self, token: Token) -> _Node:
        return _part(Property(str(token)), token)

    def text(self, token: Token) -> _Node:
        return _part(Text(_unquoted(token)), token)

    def truth(self, token: Token) -> _Node:
        return _part(Truth({"TRUE": True, "FALSE": False, "NULL": None}[token.type]), token)

    def integer(self, token: Token) -> _Node:
        digits = token.rstrip("lL")
        # (Python refuses to read thousands of digits.)
        value = int(digits) if len(digits) <= _LONG_DIGITS_MAX else _LONG_MAX + 1
        if value > _LONG_MAX:
            raise _RefusedError(token.start_pos or 0, token.end_pos or 0, f"is more than {_LONG_MAX}")
        return _part(Number(value, NumberType.INTEGER if value <= _INTEGER_MAX else NumberType.LONG), token)

    def float(self, token: Token) -> _Node:
        value = float(token)
        if value in {0.0, float("inf")}:
            raise _RefusedError(
                token.start_pos or 0, token.end_pos or 0, "is zero or infinite as a double, which RocketMQ refuses"
            )
        return _part(Number(value, NumberType.DOUBLE), token)
