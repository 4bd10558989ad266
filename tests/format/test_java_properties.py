"""Java properties: what ``java.util.Properties.load`` makes of a broker's configuration."""

import pytest

from segmentlog.store.errors import FormatError
from segmentlog.store.format.java_properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1\nb: 2\nc 3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("# a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1 \nb= 2\t", {"a": "1 ", "b": "2\t"}),
        ("a=/data/\\\n    store\nb=2", {"a": "/data/store", "b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=1\\", {"a": "1"}),
        (r"a\=b\ c=\u00e9\t\q", {"a=b c": "é\tq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a==b=c", {"a": "=b=c"}),
        ("deleteWhen=03;04", {"deleteWhen": "03;04"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_an_escape_without_its_digits_is_refused() -> None:
    with pytest.raises(FormatError, match="four hexadecimal digits"):
        parse_properties(r"a=\u12")
