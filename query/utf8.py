"""Binary values that are text."""

import pyarrow as pa


def are_utf8(values: pa.BinaryArray) -> pa.BooleanArray:
    """Return which values are UTF-8; null counts as UTF-8."""
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(map(_is_utf8, values.to_pylist()), pa.bool_())
    return pa.repeat(pa.scalar(value=True), len(values))


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
