import pyarrow as pa

from segmentlog.query.utf8 import are_utf8


def test_each_value_is_told_apart() -> None:
    values = pa.array([b"a", b"\xff", None, "ü".encode(), b"\xed\xa0\x80", b"tail \xc3"], pa.binary())
    assert are_utf8(values).to_pylist() == [True, False, True, True, False, False]
    assert are_utf8(values[2:4]).to_pylist() == [True, True]
    assert are_utf8(values[:0]).to_pylist() == []
