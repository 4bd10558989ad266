from segmentlog.query.suggestions import listing


def test_long_lists_end_with_a_count() -> None:
    assert listing([]) == "none"
    assert listing(["a", "b", "c"], most=2) == "`a`, `b` and 1 more"
