import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import segmentlog
from segmentlog.jobs import resend
from segmentlog.jobs.report import Report
from segmentlog.jobs.resend import ResendSettings
from segmentlog.jobs.resending import Cluster
from segmentlog.query.request import scan_spec
from segmentlog.query.source import StoreSource
from segmentlog.store import BrokerError, ConfigError, MessageStore, Outgoing
from segmentlog.store.ha import Address
from support.scripted_broker import SEND, Request, Script, ScriptedBroker, frame
from support.written_stores import SMALL

QUEUES, MESSAGES = 3, 20
DEAD = "%DLQ%billing"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "store"
    with MessageStore.open(path, SMALL) as store:
        for serial in range(MESSAGES):
            for queue_id in range(QUEUES):
                store.append(
                    Outgoing(
                        topic="orders",
                        queue_id=queue_id,
                        body=f"{queue_id}/{serial}".encode(),
                        tags="paid" if serial % 2 else None,
                        keys=f"k{serial}",
                        uniq_key=f"U{queue_id}.{serial}",
                        properties={"DELAY": "0", "CLUSTER": "c", "mine": "ü"},
                        born_timestamp=1_700_000_000_000 + serial,
                        flag=serial,
                    )
                )
        for serial in range(4):
            properties = {"RETRY_TOPIC": "orders" if serial % 2 else "payments", "RECONSUME_TIME": "16"}
            store.append(Outgoing(topic=DEAD, body=b"dead", properties=properties))
        store.append(Outgoing(topic="%DLQ%lost", body=b"1"))
        store.append(Outgoing(topic="%DLQ%pop", body=b"1", properties={"RETRY_TOPIC": "%RETRY%pop_orders"}))
        store.append(Outgoing(topic="%RETRY%pop_orders", body=b"2", properties={"ORIGIN_GROUP": "pop"}))
    return path


@pytest.fixture
def path(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "store"))


def sent(
    path: Path,
    broker: ScriptedBroker | str,
    topics: str | Sequence[str] = "orders",
    *,
    stop: threading.Event | None = None,
    dry_run: bool = False,
    by_name_server: bool = False,
    map_topic: Mapping[str, str] | None = None,
    sql: str | None = None,
    **settings: Any,
) -> Report:
    scan = segmentlog.open(path).scan(topics)
    address = Address.parse(broker if isinstance(broker, str) else broker.address)
    where = {"name_server": address} if by_name_server else {"broker": address}
    chosen = ResendSettings(map_topic=map_topic or {}, **settings)
    cluster = Cluster(**where, timeout_s=chosen.timeout_s)
    source, spec = StoreSource.of(str(path)), scan_spec(columns=["queueOffset"], sql=sql)
    if dry_run:
        return resend.survey(source, scan.ranges, spec, cluster, chosen)
    return resend.run(
        source,
        scan.ranges,
        spec,
        cluster,
        str(path.parent / "state"),
        settings=chosen,
        asked={"topics": topics},
        stop=stop or threading.Event(),
    )


def rows(report: Report, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in report.table.to_pylist()]


def on_send(number: int, answer: Any) -> Script:
    """Let the message with some number, counted from 1, be answered otherwise."""
    count = 0

    def script(request: Request) -> bytes | None:
        nonlocal count
        count += request.code == SEND
        if request.code != SEND or count != number:
            return None
        found = answer(request) if callable(answer) else answer
        assert found is None or isinstance(found, bytes)
        return found

    return script


@pytest.mark.parametrize("by_name_server", [False, True])
def test_messages_arrive_in_order_with_their_properties(path: Path, *, by_name_server: bool) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        report = sent(path, broker, by_name_server=by_name_server)
    assert not report.has_findings
    assert rows(report, "queueId", "toQueueId", "status", "messages", "firstOffset", "lastOffset") == [
        (each, each, "SEND_OK", MESSAGES, 0, MESSAGES - 1) for each in range(QUEUES)
    ]
    for queue_id in range(QUEUES):
        found = broker.stored("orders", queue_id)
        assert [each.body.decode() for each in found] == [f"{queue_id}/{serial}" for serial in range(MESSAGES)]
        assert [each.fields["g"] for each in found] == [str(1_700_000_000_000 + each) for each in range(MESSAGES)]
        assert [each.fields["h"] for each in found] == [str(each) for each in range(MESSAGES)]
        for serial, each in enumerate(found):
            properties = each.properties
            assert len(properties.pop("UNIQ_KEY")) == 32
            assert properties == {
                "mine": "ü",
                "KEYS": f"k{serial}",
                **({"TAGS": "paid"} if serial % 2 else {}),
                "SEGMENTLOG_ORIGIN": f"store/orders/{queue_id}/{serial}",
                "SEGMENTLOG_ORIGIN_UNIQ_KEY": f"U{queue_id}.{serial}",
            }
    assert len({each.properties["UNIQ_KEY"] for each in broker.sent}) == QUEUES * MESSAGES


def test_a_queue_has_one_message_in_flight(path: Path) -> None:
    flying: set[tuple[str, int]] = set()

    def script(request: Request) -> bytes | None:
        if request.code == SEND:
            assert request.queue not in flying
            flying.add(request.queue)
            time.sleep(0.001)
            flying.remove(request.queue)
        return None

    with ScriptedBroker({"orders": QUEUES}, script) as broker:
        assert not sent(path, broker).has_findings


def test_queues_of_a_smaller_topic_are_taken_modulo(path: Path) -> None:
    with ScriptedBroker({"orders": 2}) as broker:
        report = sent(path, broker)
    assert rows(report, "queueId", "toQueueId") == [(0, 0), (1, 1), (2, 0)]
    for source in (0, 2):
        found = [each.origin for each in broker.stored("orders", 0) if f"/{source}/" in each.origin]
        assert found == [f"store/orders/{source}/{serial}" for serial in range(MESSAGES)]


def test_dead_letters_go_home_or_to_their_group(path: Path) -> None:
    with ScriptedBroker({"orders": 4, "payments": 4, "%RETRY%billing": 1}) as broker:
        assert rows(sent(path, broker, DEAD, dry_run=True), "toTopic", "status", "messages") == [
            ("orders", "WOULD_SEND", 2),
            ("payments", "WOULD_SEND", 2),
        ]
        assert broker.sent == []
        sent(path, broker, DEAD)
        assert [each.queue[0] for each in broker.sent] == ["payments", "orders"] * 2
        assert all("RECONSUME_TIME" not in each.properties for each in broker.sent)
        (path.parent / "state").unlink()
        sent(path, broker, DEAD, map_topic={DEAD: "%RETRY%billing"})
        assert [each.properties["RETRY_TOPIC"] for each in broker.sent[4:]] == ["payments", "orders"] * 2


def test_a_filter_chooses_messages_and_the_job_still_ends(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        assert sent(path, broker, sql="TAGS = 'paid'").numbers["sent"] == QUEUES * MESSAGES // 2
        assert sent(path, broker, sql="TAGS = 'paid'").numbers["sent"] == 0
        assert len(broker.sent) == QUEUES * MESSAGES // 2


@pytest.mark.parametrize(
    ("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")]
)
def test_a_stored_message_with_a_warning_is_sent(path: Path, code: int, status: str) -> None:
    def answer(request: Request) -> bytes:
        return frame(request, code, queueOffset=0, queueId=0)

    with ScriptedBroker({"orders": QUEUES}, on_send(7, answer)) as broker:
        report = sent(path, broker)
    assert not report.has_findings
    assert [each for each in rows(report, "status", "messages") if each[0] != "SEND_OK"] == [(status, 1)]


@pytest.mark.parametrize("code", [2, 215])
def test_a_busy_broker_is_asked_again(path: Path, code: int) -> None:
    with ScriptedBroker({"orders": QUEUES}, on_send(5, lambda each: frame(each, code, remark="busy"))) as broker:
        assert not sent(path, broker).has_findings
    check_complete(broker, twice=0)


def test_a_broker_that_stays_busy_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "_PAUSES_S", (0.001, 0.001))

    def script(request: Request) -> bytes | None:
        return frame(request, 2, remark="busy") if request.code == SEND else None

    with ScriptedBroker({"orders": QUEUES}, script) as broker:
        report = sent(path, broker)
    assert rows(report, "status", "messages") == [("SYSTEM_BUSY", 1)] * QUEUES


@pytest.mark.parametrize(
    ("code", "remark", "status"),
    [
        (13, "the message body size over max value", "MESSAGE_ILLEGAL"),
        (16, "the broker's sending message is forbidden", "NO_PERMISSION"),
        (99, "?", "CODE_99"),
    ],
)
def test_a_refused_message_stops_its_queue_alone(path: Path, code: int, remark: str, status: str) -> None:
    refused = f"store/orders/1/{MESSAGES // 2}"

    def script(request: Request) -> bytes | None:
        if request.code == SEND and request.origin == refused:
            return frame(request, code, remark=remark)
        return None

    with ScriptedBroker({"orders": QUEUES}, script) as broker:
        report = sent(path, broker)
        assert report.has_findings
        assert report.numbers["left"] == MESSAGES // 2
        (problem,) = [each for state, each in rows(report, "status", "problem") if state == status]
        assert (
            problem == f"orders/1 offset {MESSAGES // 2}: broker {broker.address} refused it with code {code}: {remark}"
        )
        assert [len(broker.stored("orders", each)) for each in range(QUEUES)] == [MESSAGES, MESSAGES // 2, MESSAGES]
        broker.script = lambda _: None  # it was repaired
        report = sent(path, broker)
    assert (report.numbers["sent"], report.has_findings) == (MESSAGES // 2, False)
    assert [each.body.decode() for each in broker.stored("orders", 1)] == [f"1/{each}" for each in range(MESSAGES)]


def close(request: Request) -> bytes:
    raise ConnectionError


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (close, "the other end closed it|Connection reset by peer"),  # as the request was read or not
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "impossible length of 1213486160 bytes"),
        (b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff", "not JSON"),
    ],
)
def test_a_broker_that_goes_away_is_told_of_and_the_job_continues(path: Path, answer: Any, problem: str) -> None:
    with ScriptedBroker({"orders": QUEUES}, on_send(20, answer)) as broker:
        report = sent(path, broker)
        assert report.has_findings
        assert {each for (each,) in rows(report, "status")} == {"SEND_OK", "NO_ANSWER"}
        assert any(re.search(problem, each) for (each,) in rows(report, "problem") if each is not None)
        again = sent(path, broker)
    assert not again.has_findings
    check_complete(broker, twice=QUEUES)


def check_complete(broker: ScriptedBroker, *, twice: int) -> None:
    """Every message is there, in order, and at most some twice, with equal ids."""
    ids: dict[str, set[str]] = {}
    for queue_id in range(QUEUES):
        found = [int(each.origin.rpartition("/")[2]) for each in broker.stored("orders", queue_id)]
        assert sorted(set(found)) == list(range(MESSAGES))
        assert found == sorted(found)
    for each in broker.sent:
        ids.setdefault(each.origin, set()).add(each.properties["UNIQ_KEY"])
    assert all(len(each) == 1 for each in ids.values())
    assert len(broker.sent) - len(ids) <= twice


def test_a_silent_broker_ends_the_job_in_time(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}, on_send(9, b"")) as broker:
        began = time.monotonic()
        report = sent(path, broker, timeout_s=0.3)
        assert time.monotonic() - began < 30
        problems = [each for (each,) in rows(report, "problem") if each is not None]
        assert len(problems) == 1
        assert "no answer for 0.3 s; it may be stored" in problems[0]
        assert not sent(path, broker).has_findings
    check_complete(broker, twice=QUEUES)


def test_a_stop_waits_for_answers_and_the_job_continues(path: Path) -> None:
    stop = threading.Event()

    def script(request: Request) -> bytes | None:
        if request.code == SEND and request.origin.endswith("/7"):
            stop.set()
        return None

    with ScriptedBroker({"orders": QUEUES}, script) as broker:
        report = sent(path, broker, stop=stop)
        assert report.has_findings
        assert 0 < len(broker.sent) == report.numbers["sent"] < QUEUES * MESSAGES
        assert not sent(path, broker).has_findings
    check_complete(broker, twice=0)


def test_a_finished_job_sends_nothing_unless_asked(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        sent(path, broker)
        report = sent(path, broker)
        assert (report.numbers["sent"], report.has_findings, len(broker.sent)) == (0, False, QUEUES * MESSAGES)
        assert "all messages of this job were sent before" in caplog.text
        assert sent(path, broker, again=True).numbers["sent"] == QUEUES * MESSAGES
    assert len({each.properties["UNIQ_KEY"] for each in broker.sent}) == 2 * QUEUES * MESSAGES


def test_messages_of_an_earlier_resend_are_refused_unless_asked(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for origin in ({}, {"SEGMENTLOG_ORIGIN": "b/t/0/9"}):
            store.append(Outgoing(topic="orders", body=b"1", properties=origin))
    with ScriptedBroker({"orders": 1}) as broker:
        for dry_run in (True, False):
            with pytest.raises(
                ConfigError, match="1 messages were sent by a resend before, the first is orders/0 at off"
            ):
                sent(tmp_path / "store", broker, dry_run=dry_run)
        assert broker.sent == []
        assert not sent(tmp_path / "store", broker, again=True).has_findings
        assert [each.origin for each in broker.sent] == ["store/orders/0/0", "store/orders/0/1"]


def test_a_rate_is_kept(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        began = time.monotonic()
        assert not sent(path, broker, rate=200).has_findings
        assert time.monotonic() - began > (QUEUES * MESSAGES - 40) / 200


@pytest.mark.parametrize(
    ("topic", "mapped", "problem"),
    [
        ("orders", {"orders": "SCHEDULE_TOPIC_XXXX"}, "would go to SCHEDULE_TOPIC_XXXX, a topic of the broker"),
        ("orders", {"orders": "%DLQ%g"}, "would go to %DLQ%g"),
        ("%DLQ%lost", {}, "does not name its original topic"),
    ],
)
def test_a_wrong_target_is_refused(path: Path, topic: str, mapped: dict[str, str], problem: str) -> None:
    with ScriptedBroker({"orders": 1}) as broker, pytest.raises(ConfigError, match=problem):
        sent(path, broker, topic, map_topic=mapped)


@pytest.mark.parametrize("by_name_server", [False, True])
def test_a_topic_that_cannot_be_written_is_refused_before_anything_is_sent(path: Path, *, by_name_server: bool) -> None:
    with ScriptedBroker({"order": 1}) as broker, pytest.raises(BrokerError, match="no topic orders"):
        sent(path, broker, by_name_server=by_name_server)
    forbidden = pytest.raises(BrokerError, match="topic orders cannot be written")
    with ScriptedBroker({"orders": 1}, perm=4) as broker, forbidden:
        sent(path, broker, by_name_server=by_name_server)
    assert broker.sent == []


def test_an_address_without_a_broker_is_an_error(path: Path) -> None:
    with ScriptedBroker({}) as broker:
        address = broker.address
    with pytest.raises(BrokerError, match=f"{address} cannot be reached: Connection refused"):
        sent(path, address)


def refuse(request: Request) -> bytes:
    return frame(request, 3, remark="request type not supported")


@pytest.mark.parametrize(
    ("script", "timeout_s", "problem"),
    [
        (lambda _: b"HTTP/1.1 400 Bad Request", 60, "impossible length"),
        (lambda _: b"", 0.2, r"has not answered request code 21 for 0\.2 s"),
        (refuse, 60, "refused request code 21: 3 request type not supported"),
    ],
)
def test_another_server_at_the_address_is_an_error(path: Path, script: Script, timeout_s: float, problem: str) -> None:
    with ScriptedBroker({}, script) as other, pytest.raises(BrokerError, match=problem):
        sent(path, other, timeout_s=timeout_s)


def test_dead_letters_and_retries_of_pop_consumers_go_to_their_original_topic(path: Path) -> None:
    with ScriptedBroker({"orders": 4}) as broker:
        sent(path, broker, ["%DLQ%pop", "%RETRY%pop_orders"])
        assert [each.queue[0] for each in broker.sent] == ["orders"] * 2
        assert sorted(each.body for each in broker.sent) == [b"1", b"2"]


def test_an_answer_with_an_impossible_offset_counts_and_a_request_of_the_broker_does_not(path: Path) -> None:
    def answered(request: Request) -> bytes:
        request_of_broker = frame(request).replace(b'"flag": 1', b'"flag": 0')
        return request_of_broker + frame(request, queueOffset="9" * 5000)

    with ScriptedBroker({"orders": QUEUES}, on_send(1, answered)) as broker:
        report = sent(path, broker)
    assert not report.has_findings
    assert sum(found for (found,) in rows(report, "messages")) == len(broker.sent) + 1 == QUEUES * MESSAGES
