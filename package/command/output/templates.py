r"""Templates of messages: ``-f`` of ``cat``, as of kcat.

::

    -f '%t/%p %o: %s\n'      orders/3 17: paid
       └ parts: column topic, "/", column queueId, " ", column queueOffset, ": ", column body, "\n"

    %t topic          %o queue offset   %s body              %k keys             %T store time, ms since 1970
    %p queue id       %% a percent sign %S bytes of the body %K bytes of the keys %h properties, NAME=VALUE,…
    %R bytes of the body as 4 bytes, big-endian              %{NAME} any column
    \n \r \t \\ \xHH

As in kcat, there is no line end unless the template has one. ``%K`` of a message without keys is -1.
"""

import re
from typing import Final, NamedTuple

from ..errors import UsageError

_COLUMNS: Final = {
    "t": "topic",
    "p": "queueId",
    "o": "queueOffset",
    "s": "body",
    "S": "body",
    "R": "body",
    "k": "keys",
    "K": "keys",
    "T": "storeTimestamp",
    "h": "properties",
}
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%\{([^}]*)\}|%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)|([^%\\]+)", re.DOTALL)


class TemplatePart(NamedTuple):
    """One part of a template: a column, as a code shows it, or literal bytes."""

    column: str
    code: str
    literal: bytes


class Template(NamedTuple):
    parts: tuple[TemplatePart, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it shows, each once."""
        return tuple(dict.fromkeys(part.column for part in self.parts if part.column))


def parse_template(text: str) -> Template:
    """Parse a template; an unknown code or escape is a `UsageError`."""
    parts = []
    for token in _TOKEN.finditer(text):
        name, code, digits, escape, plain = token.groups()
        if name is not None:
            parts.append(TemplatePart(name, "", b""))
        elif code == "%":
            parts.append(TemplatePart("", "", b"%"))
        elif code is not None:
            if code not in _COLUMNS:
                codes = " ".join(f"%{each}" for each in _COLUMNS)
                raise UsageError(f"`%{code}` is unknown", fix=f"The codes are {codes} %% and %{{COLUMN}}")
            parts.append(TemplatePart(_COLUMNS[code], code, b""))
        elif digits is not None:
            parts.append(TemplatePart("", "", bytes.fromhex(digits)))
        elif escape is not None:
            if escape not in _ESCAPES:
                raise UsageError(f"`\\{escape}` is unknown", fix=r"The escapes are \n \r \t \\ and \xHH")
            parts.append(TemplatePart("", "", _ESCAPES[escape]))
        else:
            parts.append(TemplatePart("", "", plain.encode()))
    return Template(tuple(parts))
