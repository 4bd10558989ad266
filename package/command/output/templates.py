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
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from segmentlog.query.suggestions import did_you_mean, listing

from ..errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

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


class Templated:
    """Rows by a template; a column that the rows lack is a `UsageError`."""

    # A pipe gets the bytes of bodies as they are; bytes that a terminal would obey are escaped.

    def __init__(self, sink: BinaryIO, schema: "pa.Schema", template: Template, *, is_escaped: bool) -> None:
        for name in template.columns:
            if name not in schema.names:
                fix = f"{did_you_mean(name, schema.names)}The columns are {listing(schema.names, most=40)}"
                raise UsageError(f"-f: there is no column `{name}`", fix=fix)
        self._sink = sink
        self._template = template
        self._is_escaped = is_escaped

    def write(self, batch: "pa.RecordBatch") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from .json_lines import string_buffers

        if not batch.num_rows:
            return
        values = [
            pa.scalar(part.literal, pa.binary()) if not part.column else self._shown(batch[part.column], part.code)
            for part in self._template.parts
        ]
        if not any(part.column for part in self._template.parts):
            values.append(pa.repeat(pa.scalar(b"", pa.binary()), batch.num_rows))
        joined = pc.binary_join_element_wise(
            *values, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
        )
        starts, data = string_buffers(joined)
        self._sink.write(data[starts[0] : starts[-1]].data)

    def close(self) -> None:
        """Do nothing: a template has its own line ends."""

    def abandon(self) -> None:
        """Do nothing: nothing is buffered."""

    def _shown(self, column: "pa.Array", code: str) -> "pa.BinaryArray":
        import pyarrow as pa
        import pyarrow.compute as pc

        from .tables import cells

        match code:
            case "S" | "K":
                lengths = pc.binary_length(column.cast(pa.binary())).fill_null(-1)
                return lengths.cast(pa.string()).cast(pa.binary())
            case "R":
                return _big_endian(pc.binary_length(column).fill_null(-1))
            case "T":
                ms = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
                return ms.cast(pa.string()).cast(pa.binary())
        if pa.types.is_integer(column.type):
            return column.cast(pa.string()).cast(pa.binary())
        if not self._is_escaped and (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
            return column.cast(pa.binary())
        separator = "," if code == "h" else " "
        return pa.array(cells(column, null="", most=None, separator=separator), pa.string()).cast(pa.binary())


def _big_endian(lengths: "pa.Int32Array") -> "pa.BinaryArray":
    import numpy as np
    import pyarrow as pa

    data = lengths.to_numpy(zero_copy_only=False).astype(">i4")
    starts = np.arange(len(data) + 1, dtype=np.int32) * 4
    return pa.BinaryArray.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(starts), pa.py_buffer(data)])
