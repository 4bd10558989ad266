from hypothesis import given
from hypothesis import strategies as st

from segmentlog.jobs.resending.message import (
    DROPPED,
    Job,
    Row,
    encode_properties,
    is_dropped,
    properties_sent,
    request_fields,
    target_topic,
    unique_id,
)
from segmentlog.store.format.properties import parse_properties

JOB = Job("one", 1_769_817_600_000)  # 31 January 2026
_TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


def row(*properties: tuple[str, str], sys_flag: int = 0) -> Row:
    return Row(17, b"body", list(properties), 1_700_000_000_000, 9, sys_flag)


@given(st.dictionaries(_TEXT, _TEXT))
def test_properties_are_parsed_as_they_were(properties: dict[str, str]) -> None:
    assert parse_properties(encode_properties(properties.items()).encode()) == properties


@given(st.dictionaries(_TEXT | st.sampled_from(sorted(DROPPED)), _TEXT))
def test_all_properties_are_sent_except_a_brokers_own(properties: dict[str, str]) -> None:
    sent = properties_sent(row(*properties.items()), "b/t/0/17", JOB, "t", "t")
    kept = {name: value for name, value in properties.items() if not is_dropped(name) and name != "UNIQ_KEY"}
    added = {"SEGMENTLOG_ORIGIN": "b/t/0/17", "UNIQ_KEY": unique_id(JOB, "b/t/0/17")}
    if "UNIQ_KEY" in properties:
        added["SEGMENTLOG_ORIGIN_UNIQ_KEY"] = properties["UNIQ_KEY"]
    assert sent == kept | added


def test_properties_of_delays_and_transactions_are_dropped() -> None:
    for name in ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TRAN_MSG", "PGROUP", "RECONSUME_TIME"):
        assert is_dropped(name)
    for name in ("TAGS", "KEYS", "__SHARDINGKEY", "INNER_MULTI_DISPATCH", "user"):
        assert not is_dropped(name)


def test_an_id_is_of_job_and_origin_and_holds_the_time_of_the_job() -> None:
    found = unique_id(JOB, "b/t/0/17")
    assert len(bytes.fromhex(found)) == 16
    assert found == unique_id(JOB, "b/t/0/17")
    assert found != unique_id(JOB, "b/t/0/18")
    assert found != unique_id(JOB._replace(name="two"), "b/t/0/17")
    since = int.from_bytes(bytes.fromhex(found)[10:14], "big")
    assert since == 30 * 86_400_000 - 14 * 3_600_000
    assert bytes.fromhex(unique_id(Job("x", 1_767_225_600_000), ""))[10:14] == bytes(4)  # the month has just begun


def test_dead_letters_go_to_their_original_topic() -> None:
    assert target_topic("orders", None, None, {}) == "orders"
    assert target_topic("orders", "other", None, {}) == "orders"
    assert target_topic("%DLQ%g", "orders", "dlq", {}) == "orders"
    assert target_topic("%DLQ%g", None, "orders", {}) == "orders"
    assert target_topic("%RETRY%g", "orders", None, {}) == "orders"
    assert target_topic("%DLQ%g", None, None, {}) is None
    assert target_topic("%DLQ%g", "orders", None, {"%DLQ%g": "%RETRY%g"}) == "%RETRY%g"


def test_a_message_to_a_group_alone_names_its_topic() -> None:
    dead = row(("RETRY_TOPIC", "orders"), ("TAGS", "a"))
    assert properties_sent(dead, "o", JOB, "%DLQ%g", "%RETRY%g")["RETRY_TOPIC"] == "orders"
    assert properties_sent(row(), "o", JOB, "orders", "%RETRY%g")["RETRY_TOPIC"] == "orders"
    assert "RETRY_TOPIC" not in properties_sent(dead, "o", JOB, "%DLQ%g", "orders")


def test_fields_of_a_request() -> None:
    fields = request_fields(row(sys_flag=0x1 | 0x2 | 0x8 | 0x10 | 0x300), "k\x01v\x02", "orders", 3, "group")
    assert fields["f"] == str(0x1 | 0x2 | 0x300)  # neither transaction nor address family
    assert {name: fields[name] for name in "abeghij"} == {
        "a": "group",
        "b": "orders",
        "e": "3",
        "g": "1700000000000",
        "h": "9",
        "i": "k\x01v\x02",
        "j": "0",
    }
