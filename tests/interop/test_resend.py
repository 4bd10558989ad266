import hashlib
from collections import defaultdict
from pathlib import Path

import pytest

import segmentlog
from segmentlog.store import MessageStore, Outgoing
from support import oracle
from support.commands import run_command
from support.full_broker import FullBroker, serving
from support.oracle import Line
from support.scale import scale
from support.written_stores import SMALL

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=0)]  # `command/verbs/test_resend.py` has a scripted broker

QUEUES, MESSAGES = 4, 50
BROKER = {"CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "WAIT"}
"""Properties that a broker or a client adds to each message."""


def outgoing(serial: int) -> Outgoing:
    body = b"large " * 2000 if serial % 50 == 7 else f"body {serial}".encode()
    return Outgoing(
        topic="orders",
        queue_id=serial % QUEUES,
        body=body,
        tags="paid" if serial % 2 else None,
        keys=f"k{serial} all",
        uniq_key=f"7F00000100002A139A553B5FDB{serial:06X}",
        properties={"text": f"ü{serial} \x01 \U0001f600", "TIMER_DELAY_SEC": "3600", "TRAN_MSG": "true"},
        born_timestamp=1_763_700_000_000 + serial,
        flag=serial,
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resend") / "source"
    with MessageStore.open(path, SMALL) as store:
        for serial in range(QUEUES * MESSAGES):
            store.append(outgoing(serial))
        for serial in range(8):
            properties = {"RETRY_TOPIC": "orders", "RECONSUME_TIME": "16", "TIMER_DELAY_SEC": "60", "n": str(serial)}
            store.append(Outgoing(topic="%DLQ%billing", body=b"dead", properties=properties, reconsume_times=16))
    return path


def resent(path: Path, broker: FullBroker, folder: Path, topic: str, *flags: object) -> None:
    where = "--namesrv", broker.name_server
    ran = run_command("resend", path, topic, *where, "--state", folder / f"{topic}.state", "--json", *flags)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("version", scale(["5.5.0"], ["5.5.0", "4.9.1"], ["5.5.0", "4.9.1", "5.1.0", "5.3.3"]))
def test_consumers_get_every_message_in_order_with_its_properties(version: str, path: Path, tmp_path: Path) -> None:
    with serving(version, tmp_path / "store", {}, tmp_path) as broker:
        broker.create("orders")
        resent(path, broker, tmp_path, "orders")
        check_orders(broker.consume("orders", QUEUES * MESSAGES, "--idle", 120_000))
        assert len(broker.by_keys("orders", ["k9"])[0]) == 1
        (line,) = segmentlog.open(tmp_path / "store").find("orders", keys="k9").to_arrow().to_pylist()
        assert len(broker.by_ids("orders", [line["uniqKey"]])[0]) == 1

        resent(path, broker, tmp_path, "%DLQ%billing")
        # A new group, as the first consumer's last positions may reach the broker after the next consumer began.
        every = broker.consume("orders", QUEUES * MESSAGES + 8, "--idle", 120_000, "--group", "later")
        dead = [each for each in every if "n" in each["properties"]]
        assert sorted(each["properties"]["n"] for each in dead) == [str(each) for each in range(8)]
        assert all(each["reconsumeTimes"] == 0 and "TIMER_DELAY_SEC" not in each["properties"] for each in dead)


def check_orders(lines: list[Line]) -> None:
    found: dict[int, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda each: (each["queueId"], each["queueOffset"])):
        found[line["queueId"]].append(line)
    for queue_id in range(QUEUES):
        expected = [outgoing(serial) for serial in range(queue_id, QUEUES * MESSAGES, QUEUES)]
        assert len(found[queue_id]) == MESSAGES
        for offset, (line, message) in enumerate(zip(found[queue_id], expected, strict=True)):
            assert line["bodySha256"] == hashlib.sha256(message.body).hexdigest()
            assert (line["bornTimestamp"], line["flag"]) == (message.born_timestamp, message.flag)
            properties = {name: text for name, text in line["properties"].items() if name not in BROKER}
            assert properties.pop("UNIQ_KEY") == line["msgId"]
            assert properties == {
                "text": message.properties["text"],
                "KEYS": message.keys,
                **({} if message.tags is None else {"TAGS": message.tags}),
                "SEGMENTLOG_ORIGIN": f"source/orders/{queue_id}/{offset}",
                "SEGMENTLOG_ORIGIN_UNIQ_KEY": message.uniq_key,
            }
