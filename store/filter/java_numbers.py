"""Numbers in text, read as Java reads them: ``Integer.valueOf``, ``Long.valueOf`` and ``Double.valueOf`` of columns.

::

    Integer, Long   [+-] digits of any script           no blanks, no point, no overflow
    Double          blanks [+-] ( digits [.digits] [e[+-]digits]  |  .digits [e[+-]digits]
                                | 0x hex digits [.] p [+-] digits | NaN | Infinity ) [fFdD] blanks

RocketMQ parses a property as the type of the number that it is compared with. Text that cannot be parsed voids the
whole filter for that message, so what is accepted here decides which messages match.

Columns of plain numbers take one Arrow cast. Only a batch that has anything else in it is looked at by patterns.
"""

import sys
import unicodedata
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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


def integers(texts: pa.StringArray, bits: int) -> pa.Int64Array:
    """Parse a column as ``Integer.valueOf`` or ``Long.valueOf`` does.

    Parameters
    ----------
    texts
        (n,) strings.
    bits
        32 for Integer, 64 for Long.

    Returns
    -------
    (n,) int64 array, null where the text is null or Java throws a ``NumberFormatException``
    """
    if _within(texts, _PLAIN_INTEGER):
        try:
            return _in_range(pc.cast(texts, pa.int64()), bits)
        except pa.ArrowInvalid:
            pass  # one of them is no number, or a larger one
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
    digits = _only(digits, pc.less_equal(length, _LONG_DIGITS_MAX))  # what is longer is no long
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
    """Parse a column as ``Double.valueOf`` does, to numbers that compare as ``Double.compareTo`` has it.

    Parameters
    ----------
    texts
        (n,) strings.

    Returns
    -------
    (n,) int64 array of `order_key`, null where the text is null or Java throws a ``NumberFormatException``
    """
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
    except pa.ArrowInvalid:  # some releases of Arrow refuse what a double cannot hold; Java has it infinite
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
    """Return an integer that stands to others as ``Double.compareTo`` has it: -0.0 is less than 0.0, NaN the most."""
    return int(_keys(np.array([number], np.float64))[0])


def _order_keys(numbers: pa.DoubleArray) -> pa.Int64Array:
    return _only(pa.array(_keys(pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False))), pc.is_valid(numbers))


def _keys(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    # Negative doubles count their magnitude from the sign on: turned round, all bits but the sign's.
    return bits ^ ((bits >> 63) & np.int64(sys.maxsize))


def _only(values: pa.Array, wanted: pa.BooleanArray) -> pa.Array:
    """Values where wanted; null elsewhere."""
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
