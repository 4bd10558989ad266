"""Names in error messages."""

from segmentlog.suggestions import did_you_mean, listing, suggest, unknown_group, unknown_topic


def test_the_nearest_name_whatever_its_case() -> None:
    assert suggest("ORDRS", ["orders", "payments"]) == "orders"
    assert suggest("xyz", ["orders", "payments"]) is None
    assert did_you_mean("payment", ["orders", "payments"]) == "Did you mean `payments`? "
    assert did_you_mean("xyz", ["orders"]) == ""


def test_long_lists_end_with_a_count() -> None:
    assert listing([]) == "none"
    assert listing(["a", "b", "c"], most=2) == "`a`, `b` and 1 more"


def test_an_unknown_group_lists_the_known_ones() -> None:
    text = str(unknown_group("elt", {"old", "etl"}, path="/store"))
    assert "consumer group `elt` has no position here (in /store)" in text
    assert "Did you mean `etl`? The groups with a position are `etl`, `old`" in text


def test_an_unknown_topic_lists_the_known_ones() -> None:
    text = str(unknown_topic("TOPIC", "ordrs", ["orders", "payments"], path="/store"))
    assert "TOPIC: there is no topic `ordrs` (in /store)" in text
    assert "Did you mean `orders`? The topics are `orders`, `payments`" in text
