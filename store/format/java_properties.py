r"""Java properties: the text of a broker's configuration file, as names and values.

::

    # comment            ! comment
    deleteWhen=04        name = value        name: value        name value
    storePathRootDir=/data/\
        store            a line that ends in an odd number of \ goes on in the next one
    name=a\u00e9\tb      escapes

RocketMQ: ``mqbroker -c broker.conf`` reads it by ``java.util.Properties.load``.
"""

import re
from collections.abc import Iterator
from typing import Final

from ..errors import FormatError

_BLANKS: Final = " \t\f"
_NAME: Final = re.compile(r"(?:\\.|[^\\ \t\f=:])*")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the values of a properties text by name; of several lines with one name the last counts.

    Raises
    ------
    FormatError
        If an escape of a code unit has no four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        name = _NAME.match(line)
        assert name is not None  # it matches the empty string, too
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None
        found[_unescaped(name.group(), line)] = _unescaped(line[separator.end() :], line)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Join lines that go on, without comments and blank lines."""
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
