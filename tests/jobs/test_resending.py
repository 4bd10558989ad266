import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.jobs.resending import (
    DROPPED,
    Cluster,
    Connection,
    Progress,
    Queue,
    ResendJob,
    Row,
    encode_properties,
    is_dropped,
    properties_sent,
    request_fields,
    target_topic,
    unique_id,
    wait,
)
from segmentlog.store import BrokerError, ConfigError, FormatError, QueueKey, QueueRange
from segmentlog.store.format.properties import parse_properties
from segmentlog.store.ha import Address
from support.scripted_broker import ROUTE, Request, ScriptedBroker, frame


def test_requests_larger_than_a_socket_takes_are_sent_in_parts() -> None:
    body = bytes(8 << 20)
    with ScriptedBroker({"orders": 1}) as broker, Connection(Address("127.0.0.1", broker.port)) as connection:
        fields = {"b": "orders", "e": "0", "i": ""}
        asked = [connection.submit(310, fields, body) for _ in range(3)]
        found: list[int] = []
        while len(found) < 3:
            found += [answer.opaque for _, answers in wait([connection], 10) for answer in answers]
            assert connection.problem is None
        assert found == asked
        assert [each.body for each in broker.sent] == [body] * 3


@pytest.mark.parametrize(
    ("route", "found"),
    [
        ('{"brokerDatas":[],"queueDatas":[]}', "cannot be written"),
        ('{"brokerDatas":[{"brokerName":"a","brokerAddrs":{1:"h:1"}}],"queueDatas":[{"brokerName":"a"}]}', "no master"),
        ("{}", "cannot be written"),
        ("nonsense", "not JSON"),
        (
            '{"brokerDatas":[{"brokerName":"a","brokerAddrs":{0:"h"}}]}',
            "cannot be used: the address 'h' is not host:port",
        ),
        (f'{{"brokerDatas":[{{"brokerName":"a","brokerAddrs":{{0:"h:{"1" * 5000}"}}}}]}}', "is not host:port"),
        ('{"queueDatas":[{"brokerName":[]}]}', "cannot be used: '\\[\\]' is not a name"),
        (
            (
                '{"brokerDatas":[{"brokerName":"a","brokerAddrs":{0:"h:1"}}],'
                '"queueDatas":[{"brokerName":"a","writeQueueNums":2147483647,"perm":6}]}'
            ),
            "topic orders has 2147483647 queues, and at most 65536",
        ),
    ],
)
def test_a_route_without_masters_is_refused(route: str, found: str) -> None:
    with ScriptedBroker({}, lambda each: frame(each, body=route.encode())) as broker:
        cluster = Cluster(name_server=Address("127.0.0.1", broker.port), timeout_s=5)
        with pytest.raises(BrokerError, match=found):
            cluster.queues("orders")


def test_a_number_of_queues_is_bounded_for_the_topic_that_is_asked_for() -> None:
    with ScriptedBroker({"orders": 1, "large": (1 << 31) - 1}) as broker:
        cluster = Cluster(broker=Address("127.0.0.1", broker.port), timeout_s=5)
        assert len(cluster.queues("orders")) == 1
        with pytest.raises(BrokerError, match="topic large has 2147483647 queues, and at most 65536"):
            cluster.queues("large")


def test_a_route_names_the_queues_of_all_masters() -> None:
    def script(request: Request) -> bytes:
        assert (request.code, request.fields) == (ROUTE, {"topic": "orders"})
        datas: list[Any] = [
            '{"brokerName":"b","brokerAddrs":{"0":"10.0.0.2:10911"}}',
            '{"brokerName":"a","brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.3:10911"}}',
            '{"brokerName":"c","brokerAddrs":{1:"10.0.0.4:10911"}}',
        ]
        queues = [f'{{"brokerName":"{each}","writeQueueNums":2,"perm":6}}' for each in "abc"]
        return frame(request, body=f'{{"brokerDatas":[{",".join(datas)}],"queueDatas":[{",".join(queues)}]}}'.encode())

    with ScriptedBroker({}, script) as broker:
        cluster = Cluster(name_server=Address("127.0.0.1", broker.port), timeout_s=5)
        a, b = Address("10.0.0.1", 10911), Address("10.0.0.2", 10911)
        assert cluster.queues("orders") == [Queue(a, 0), Queue(a, 1), Queue(b, 0), Queue(b, 1)]


JOB = ResendJob("one", 1_769_817_600_000)  # 31 January 2026
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
    assert bytes.fromhex(unique_id(ResendJob("x", 1_767_225_600_000), ""))[10:14] == bytes(
        4
    )  # the month has just begun


def test_dead_letters_go_to_their_original_topic() -> None:
    assert target_topic("orders", None, None, {}) == "orders"
    assert target_topic("orders", "other", None, {}) == "orders"
    assert target_topic("%DLQ%g", "orders", "dlq", {}) == "orders"
    assert target_topic("%DLQ%g", None, "orders", {}) == "orders"
    assert target_topic("%RETRY%g", "orders", None, {}) == "orders"
    assert target_topic("%DLQ%g", None, None, {}) is None
    assert target_topic("%DLQ%g", "orders", None, {"%DLQ%g": "%RETRY%g"}) == "%RETRY%g"


@pytest.mark.parametrize(
    ("topic", "retry_topic", "group", "expected"),
    [
        ("%DLQ%g", "%RETRY%g_orders", None, "orders"),
        ("%DLQ%g", "%RETRY%g+orders", None, "orders"),
        ("%DLQ%g_a", "%RETRY%g_a_orders", None, "orders"),
        ("%DLQ%g", "%RETRY%g_a_orders", None, "a_orders"),
        ("%DLQ%g", "%RETRY%other_orders", None, "%RETRY%other_orders"),  # a topic that this group has read itself
        ("%DLQ%g", "%RETRY%g_", None, "%RETRY%g_"),
        ("%RETRY%g+orders", None, None, "orders"),
        ("%RETRY%g+", None, None, None),
        ("%RETRY%g_orders", None, "g", "orders"),
        ("%RETRY%g_orders", None, None, None),  # the group may be g_orders
        ("%RETRY%g_orders", "%RETRY%g_orders", "g", "orders"),
        ("orders", "%RETRY%g+other", "g", "orders"),
    ],
)
def test_messages_of_pop_consumers_go_to_their_original_topic(
    topic: str, retry_topic: str | None, group: str | None, expected: str | None
) -> None:
    assert target_topic(topic, retry_topic, None, {}, group) == expected
    assert target_topic(topic, None, retry_topic, {}, group) == expected
    properties = {"RETRY_TOPIC": retry_topic, "ORIGIN_GROUP": group}
    stored = row(*((name, value) for name, value in properties.items() if value))
    sent = properties_sent(stored, "o", JOB, topic, "%RETRY%g")
    assert sent["RETRY_TOPIC"] == (expected or topic)
    assert "ORIGIN_GROUP" not in sent


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


A, B = QueueKey("orders", 0), QueueKey("päckchen" * 9, 12)
RANGES = [QueueRange(A, 3, 40), QueueRange(B, 0, 7), QueueRange(A, 50, 60)]
ASKED = {"store": "/data", "topic": ["orders"], "queue": None}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def opened(path: str, ranges: list[QueueRange] = RANGES, *, again: bool = False, **asked: object) -> Progress:
    return Progress.open(path, ranges, ASKED | asked, again=again)


def test_a_job_continues_with_the_ranges_with_which_it_began(path: str) -> None:
    with opened(path) as progress:
        assert progress.left() == [RANGES[0], RANGES[2], RANGES[1]]
        progress.acknowledge(A, 18)
        progress.acknowledge(B, 7)
        job = progress.job
    with opened(path, [QueueRange(A, 0, 99)]) as progress:
        assert progress.job == job
        assert progress.left() == [QueueRange(A, 18, 40), QueueRange(A, 50, 60)]
        progress.acknowledge(A, 55)
        assert progress.left() == [QueueRange(A, 55, 60)]
        progress.acknowledge(A, 60)
        assert progress.is_finished
    with opened(path) as progress:
        assert (progress.left(), progress.job) == ([], job)


def test_only_a_finished_job_begins_again(path: str) -> None:
    with opened(path) as progress:
        progress.acknowledge(A, 18)
        job = progress.job
    with opened(path, again=True) as progress:
        assert progress.job == job
        progress.acknowledge(A, 60)
        progress.acknowledge(B, 7)
    with opened(path, again=True) as progress:
        assert progress.job != job
        assert len(progress.left()) == 3


@given(st.integers(0, (1 << 63) - 1))
def test_lines_are_json_and_numbers_stay_within_sectors(tmp_path_factory: pytest.TempPathFactory, offset: int) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    with opened(str(path)) as progress:
        progress.acknowledge(B, offset)
    content = path.read_bytes()
    at = 0
    for line in content.splitlines(keepends=True):
        first = at + len('{"next":')
        assert first // 512 == (first + 19) // 512
        at += len(line)
    assert [json.loads(line)["next"] for line in content.splitlines()] == [0, 3, offset]


def test_a_job_without_messages_is_refused_and_leaves_no_job(path: str) -> None:
    with pytest.raises(ConfigError, match="no messages found between start and end"):
        opened(path, [QueueRange(A, 3, 3)])
    with opened(path) as progress:
        assert len(progress.left()) == 3


@given(st.integers(0, 500), st.binary(max_size=20))
def test_a_damaged_file_is_refused(tmp_path_factory: pytest.TempPathFactory, at: int, data: bytes) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    opened(str(path)).__exit__()
    content = path.read_bytes()
    path.write_bytes(content[:at] + data)
    with suppress(FormatError, ConfigError), opened(str(path)) as progress:
        assert set(progress.queues) == {A, B}
