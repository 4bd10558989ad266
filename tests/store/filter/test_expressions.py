from segmentlog.store.filter.expressions import (
    Number,
    NumberType,
)


def test_numbers_compare_as_the_wider_type() -> None:
    small, large = Number(1, NumberType.INTEGER), Number(2**53 + 1, NumberType.LONG)
    assert (small.compare(large), large.compare(small), small.compare(small)) == (-1, 1, 0)
    assert large.compare(Number(2.0**53, NumberType.DOUBLE)) == 0  # as a double it is that
    assert Number(0.5, NumberType.DOUBLE).compare(small) == -1
