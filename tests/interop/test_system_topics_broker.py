import os
import shlex
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import segmentlog
from segmentlog.store import Snapshot
from support import oracle
from support.full_broker import FullBroker, serving
from support.oracle import Line
from support.replicas import until

pytestmark = [
    *oracle.MARKS,
    pytest.mark.scaled(quick=0),  # `query/test_system_frames.py` reads the same kinds of messages
]

CONFIG = {
    "broker.traceTopicEnable": True,
    "broker.transactionCheckInterval": 3000,
    "broker.transactionTimeOut": 1000,
    "broker.transactionCheckMax": 1000,  # else an open transaction is discarded while the test runs
}
HOUR_MS = 3_600_000


@pytest.mark.parametrize("version", ["5.5.0", "4.9.1"])  # 5.5.1 was published without its broker
def test_frames_show_the_messages_of_a_broker_and_its_clients(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with serving(version, path, CONFIG, tmp_path) as broker:
        began = time.monotonic()
        soon = broker.produce("Delayed", 4, "--delay", 1, "--keys")
        client_s = time.monotonic() - began
        later = broker.produce("Delayed", 3, "--delay", 17, "--keys", "--first", 10)
        timers = timed(broker, 8 + round(6 * client_s)) if version.startswith("5") else {}
        answered = broker.produce("Tx", 8, "--transaction", "mix", "--trace", "--keys", "--linger", 12_000)
        open_end = broker.produce("Tx", 1, "--first", 2, "--transaction", "mix", "--group", "gone")
        consumed = broker.consume("Delayed", 4, "--least", 4, "--push", "--trace")
        consumed_timers = broker.consume("Timed", 9, "--least", 3, "--idle", 5000) if timers else []
        # Of indices 0 to 7 each fourth is rolled back, each fourth committed when the broker asks.
        committed = broker.consume("Tx", 9, "--least", 6, "--idle", 5000)
        store = segmentlog.open(path)  # beside the running broker
        until(lambda: any(row["checks"] for row in open_half(store, open_end)), seconds=120)
        check_levels(store, soon, later, consumed)
        check_timers(store, timers, consumed_timers)
        check_transactions(store, answered, open_end, committed)
    store = segmentlog.open(path)
    check_levels(store, soon, later, consumed)
    check_timers(store, timers, consumed_timers)
    check_transactions(store, answered, open_end, committed)
    check_traces(store, answered, consumed)


def timed(broker: FullBroker, due_s: int) -> dict[str, list[Line]]:
    """Send timers: of those that are due soon, one is deleted; two are due in an hour, one of them deleted.

    A broker refuses to delete a timer that is due: by ``due_s`` five clients have to have ended.
    """
    broker.create("Timed")
    due = (int(time.time()) + due_s) * 1000 + 500
    soon = broker.produce("Timed", 4, "--put", f"TIMER_DELIVER_MS={due}", "--keys")
    far = broker.produce("Timed", 2, "--put", f"TIMER_DELIVER_MS={due + HOUR_MS}", "--first", 10)
    for line, at in ((soon[0], due), (far[0], due + HOUR_MS)):
        broker.produce("Timed", 1, "--put", f"TIMER_DELIVER_MS={at},TIMER_DEL_UNIQKEY={line['msgId']}")
    return {"soon": soon, "far": far}


def rows(found: segmentlog.SystemRows) -> list[dict[str, Any]]:
    return found.to_arrow().to_pylist()


def open_half(store: segmentlog.Store, open_end: list[Line]) -> list[dict[str, Any]]:
    """Rows of the transaction of the producer that is gone, which the broker checks again and again."""
    return [row for row in rows(store.transactions("Tx")) if row["uniqKey"] == open_end[0]["msgId"]]


def check_levels(store: segmentlog.Store, soon: list[Line], later: list[Line], consumed: list[Line]) -> None:
    found = rows(store.delayed("Delayed"))
    # A client is told id and offset in the topic of delayed messages, and the queue of the real one.
    told = {line["offsetMsgId"]: (line["queueId"], line["queueOffset"], line["msgId"]) for line in [*soon, *later]}
    assert {row["msgId"]: (row["queueId"], row["delayQueueOffset"], row["uniqKey"]) for row in found} == told
    delivered = {row["uniqKey"] for row in found if row["state"] == "delivered"}
    assert delivered == {line["msgId"] for line in soon}
    assert {row["keys"] for row in found if row["uniqKey"] in delivered} == {line["keys"] for line in consumed}
    assert Counter((row["kind"], row["level"], row["state"]) for row in found) == {
        ("level", 1, "delivered"): 4,
        ("level", 17, "pending"): 3,
    }
    snapshot = Snapshot.open(store.path)
    for row in found:
        message = snapshot.message_at(row["physicalOffset"])
        assert message is not None
        assert message.uniq_key == row["uniqKey"]
        seconds = (row["dueTimestamp"] - message.store_timestamp).total_seconds()
        assert seconds == pytest.approx({1: 1, 17: 3600}[row["level"]], abs=0.01)


def check_timers(store: segmentlog.Store, sent: dict[str, list[Line]], consumed: list[Line]) -> None:
    found = {row["uniqKey"]: row for row in rows(store.delayed("Timed"))}
    if not sent:
        assert not found
        return
    gone, *soon = (line["msgId"] for line in sent["soon"])
    deleted, *far = (line["msgId"] for line in sent["far"])
    states = {key: row["state"] for key, row in found.items()}
    assert states == dict.fromkeys(soon, "delivered") | dict.fromkeys(far, "pending") | {
        gone: "deleted",
        deleted: "deleted",
    }
    assert {line["keys"] for line in consumed} == {line["keys"] for line in sent["soon"][1:]}
    assert {row["kind"] for row in found.values()} == {"timer"}


def check_transactions(
    store: segmentlog.Store, answered: list[Line], open_end: list[Line], committed: list[Line]
) -> None:
    found = rows(store.transactions("Tx"))
    by_key: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_key.setdefault(row["uniqKey"], []).append(row)
    expected = {line["msgId"]: "rollback" if line["index"] % 4 == 1 else "commit" for line in answered}
    expected |= {line["msgId"]: "pending" for line in open_end}
    # A broker writes a half message again before it checks it: the outcome is that of the last one.
    # Beside the broker, that one may be written while the frame is read: then all rows of it are `checked`.
    outcomes = {key: {row["outcome"] for row in each} - {"checked"} or {"pending"} for key, each in by_key.items()}
    assert outcomes == {key: {outcome} for key, outcome in expected.items()}
    assert {line["keys"] for line in committed} == {row["keys"] for row in found if row["outcome"] == "commit"}
    last = by_key[open_end[0]["msgId"]][-1]
    assert last["checks"] == len(by_key[open_end[0]["msgId"]]) - 1 > 0
    assert last["producerGroup"] == "gone"
    snapshot = Snapshot.open(store.path)
    for row in found:
        if row["outcome"] == "commit":
            message = snapshot.message_at(row["commitPhysicalOffset"])
            assert message is not None
            assert (message.topic, message.queue_id, message.uniq_key) == ("Tx", row["queueId"], row["uniqKey"])
            assert message.prepared_transaction_offset == row["physicalOffset"]
            assert message.queue_offset == row["commitQueueOffset"]


def check_traces(store: segmentlog.Store, answered: list[Line], consumed: list[Line]) -> None:
    found = rows(store.trace())
    assert {row["error"] for row in found} == {None}
    published = {row["traceMsgId"]: row for row in found if row["type"] == "Pub"}
    assert {key: row["keys"] for key, row in published.items()} == {line["msgId"]: line["keys"] for line in answered}
    assert {(row["isSuccess"], row["topic"], row["bodyLength"]) for row in published.values()} == {(True, "Tx", 100)}
    halves = {row["msgId"]: row["uniqKey"] for row in rows(store.transactions("Tx"))}
    assert all(halves[row["offsetMsgId"]] == key for key, row in published.items())
    ended = {row["traceMsgId"]: row["transactionState"] for row in found if row["type"] == "EndTransaction"}
    assert set(ended) <= {line["msgId"] for line in answered}
    assert set(ended.values()) <= {"COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"}
    assert len(ended) == len(answered)
    for kind in ("SubBefore", "SubAfter"):
        got = [row for row in found if row["type"] == kind]
        assert {row["keys"] for row in got} >= {line["keys"] for line in consumed}
    assert store.trace("Tx").count() == sum(row["topic"] == "Tx" for row in found)


@pytest.mark.parametrize("version", ["5.5.0", "4.9.1"])
def test_messages_that_a_killed_broker_delivered_again_are_found(version: str, tmp_path: Path) -> None:
    """A broker that has not saved its progress begins where it began before: 5.5.0 delivers timers three times."""
    path, has_timers = tmp_path / "store", version.startswith("5")
    never = {"timerFlushIntervalMs": 600_000} if has_timers else {"flushDelayOffsetInterval": 600_000}
    with serving(version, path, CONFIG | never, tmp_path) as broker:
        # A time of day may pass on a busy machine before the last message is sent, which is no timer then.
        how = ("--put", "TIMER_DELAY_MS=4000") if has_timers else ("--delay", 1)
        sent = broker.produce("Delayed", 4, *how, "--keys")
        later = broker.produce("Delayed", 2, "--delay", 17, "--first", 10)
        until(lambda: delivery_of(path, sent) == {"once"}, seconds=60)
        os.kill(broker.pid, signal.SIGKILL)
    # Whatever the interval, a broker saves its delay offsets for the first time 10 s after its start.
    for saved in (path / "config").glob("delayOffset.json*"):
        saved.unlink()
    assert delivery_of(path, later) == {"pending"}
    with serving(version, path, CONFIG, tmp_path):
        until(lambda: delivery_of(path, sent) == {"repeated"}, seconds=60)
    found = {row["uniqKey"]: row for row in rows(segmentlog.open(path).deliveries())}
    assert min(found[line["msgId"]]["deliveries"] for line in sent) >= 2
    assert delivery_of(path, later) == {"pending"}
    snapshot = Snapshot.open(path)
    for line in sent:
        row = found[line["msgId"]]
        for name in ("deliveryPhysicalOffset", "lastDeliveryPhysicalOffset"):
            message = snapshot.message_at(row[name])
            assert message is not None
            assert (message.topic, message.uniq_key) == (row["topic"], line["msgId"])


def delivery_of(path: Path, sent: list[Line]) -> set[str | None]:
    """Delivery of the messages that were sent; None if one has no row."""
    found = {row["uniqKey"]: row["delivery"] for row in rows(segmentlog.open(path).deliveries())}
    return {found.get(line["msgId"]) for line in sent}


@pytest.mark.parametrize("version", ["5.5.0", "4.9.1"])
def test_dead_letters_of_a_broker_are_counted_by_group_and_topic(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with serving(version, path, {"messageDelayLevel": " ".join(["1s"] * 18)}, tmp_path) as broker:
        broker.produce("Orders", 3, "--keys")
        broker.produce("Payments", 3, "--keys", "--first", 10)
        push = ("--push", "--idle", 3000, "--group")
        broker.consume("Orders", 9, *push, "billing", "--least", 1, "--retry", 2, "--give-up")
        broker.consume("Payments", 9, *push, "billing", "--least", 1, "--retry", 2, "--retries", 0)
        broker.consume("Orders", 9, *push, "audit", "--least", 2, "--retry", 4, "--retries", 1)
    found = {(row["group"], row["topic"]): row for row in rows(segmentlog.open(path).dead_letters())}
    counts = {key: (row["messages"], row["exhausted"], row["retries"]) for key, row in found.items()}
    assert counts == {
        ("billing", "Orders"): (2, 0, 0),
        ("billing", "Payments"): (2, 0, 0),
        ("audit", "Orders"): (1, 0, 1),
    }
    for (group, topic), row in found.items():
        filters = [] if group == "audit" else ["--sql", f"RETRY_TOPIC = '{topic}'"]
        expected = ["segmentlog", "resend", str(path), f"%DLQ%{group}", *filters]
        assert shlex.split(row["resend"]) == [*expected, "--broker", "HOST:10911", "--state", "FILE"]
