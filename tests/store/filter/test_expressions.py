from segmentlog.store.filter.expressions import (
    And,
    Compare,
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
    Or,
    Order,
    Property,
    Text,
    Truth,
    property_names,
)


def test_property_names_are_collected_from_all_parts() -> None:
    a, b, c, d, e, f, g = map(Property, "abcdefg")
    condition = And(
        (
            Or((Not(IsTrue(a)), Equal(b, Text("x")))),
            Compare(Negative(c), Order.LESS, d),
            In(e, frozenset({"y"})),
            Matches(f, Match.CONTAINS, "z", negated=False),
            IsNull(g),
            Truth(None),
        )
    )
    assert property_names(condition) == set("abcdefg")
    assert property_names(Equal(Text("a"), Number(1, NumberType.LONG))) == set()


def test_numbers_compare_as_the_wider_type() -> None:
    small, large = Number(1, NumberType.INTEGER), Number(2**53 + 1, NumberType.LONG)
    assert (small.compare(large), large.compare(small), small.compare(small)) == (-1, 1, 0)
    assert large.compare(Number(2.0**53, NumberType.DOUBLE)) == 0  # as a double it is that
    assert Number(0.5, NumberType.DOUBLE).compare(small) == -1
