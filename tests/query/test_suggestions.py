from segmentlog.query.suggestions import did_you_mean, listing, suggest


def test_the_nearest_name_is_suggested_regardless_of_case() -> None:
    assert suggest("ORDRS", ["orders", "payments"]) == "orders"
    assert suggest("xyz", ["orders", "payments"]) is None
    assert did_you_mean("payment", ["orders", "payments"]) == "Did you mean `payments`? "
    assert did_you_mean("xyz", ["orders"]) == ""


def test_long_lists_end_with_a_count() -> None:
    assert listing([]) == "none"
    assert listing(["a", "b", "c"], most=2) == "`a`, `b` and 1 more"
