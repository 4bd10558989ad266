import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing
from support.commands import run_command
from support.scale import scale
from support.scripted_broker import SEND, Request, ScriptedBroker
from support.written_stores import SMALL

QUEUES, MESSAGES = 3, 12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for serial in range(MESSAGES):
            for queue_id in range(QUEUES):
                body, keys = f"{queue_id}/{serial}".encode(), f"k{serial} q{queue_id}"
                store.append(Outgoing(topic="orders", queue_id=queue_id, body=body, keys=keys))
    return tmp_path / "store"


def flags(path: Path, broker: ScriptedBroker, *more: object) -> list[object]:
    state = path.parent / "state"
    return ["resend", path, "orders", "--broker", broker.address, "--state", state, "--json", *more]


def bodies(broker: ScriptedBroker) -> list[str]:
    return [each.body.decode() for each in broker.sent]


def test_a_report_has_a_row_per_queue(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        ran = run_command(*flags(path, broker))
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert (report["sent"], report["left"]) == (QUEUES * MESSAGES, 0)
    assert [(row["queueId"], row["status"], row["messages"]) for row in report["rows"]] == [
        (queue_id, "SEND_OK", MESSAGES) for queue_id in range(QUEUES)
    ]


def test_a_dry_run_needs_no_state_and_sends_nothing(path: Path) -> None:
    with ScriptedBroker({"paid": 2}) as broker:
        ran = run_command(
            "resend", path, "orders", "--namesrv", broker.address, "--map-topic", "orders=paid", "--dry-run"
        )
        assert (ran.code, broker.sent) == (0, [])
    assert f"messages {QUEUES * MESSAGES}" in ran.text
    assert ran.text.count("WOULD_SEND") == QUEUES


def test_positions_queues_and_keys_choose_messages(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        assert run_command(*flags(path, broker, "-p", 1, "--from", 3, "--to", 5)).code == 0
        assert bodies(broker) == ["1/3", "1/4"]
        (path.parent / "state").unlink()
        broker.sent.clear()
        assert run_command(*flags(path, broker, "--key", "k7", "--key", "k9", "--from", 2, "-p", "0,2")).code == 0
        assert sorted(bodies(broker)) == ["0/7", "0/9", "2/7", "2/9"]
        missing = run_command(*flags(path, broker, "--key", "k7", "--key", "q1", "--from", 9)).error
    assert missing["found"] == "--key: no message between start and end has `k7`"


def test_a_repetition_sends_nothing_and_another_job_is_refused(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        assert run_command(*flags(path, broker)).code == 0
        ran = run_command(*flags(path, broker))
        assert (ran.code, json.loads(ran.out)["sent"]) == (0, 0)
        assert "--again sends them once more" in ran.err
        other = run_command(*flags(path, broker, "--tag", "paid")).error
        assert "is of another job: tag was None, and is 'paid'" in other["found"]
        assert len(broker.sent) == QUEUES * MESSAGES


def command(path: Path, broker: ScriptedBroker) -> list[str]:
    return [sys.executable, "-m", "segmentlog.command", *map(str, flags(path, broker))]


def slow(request: Request) -> None:
    if request.code == SEND:
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("seed", range(scale(1, 4, 8)))
def test_a_killed_job_sends_every_message_and_repeats_only_unacknowledged_messages(path: Path, seed: int) -> None:
    kills, rng = scale(2, 16, 25), random.Random(seed)
    target, twice = 0, 0
    with ScriptedBroker({"orders": QUEUES}) as broker:
        for _ in range(kills):
            target = len(broker.sent) + rng.randrange(1, 6)
            with subprocess.Popen(
                command(path, broker), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                broker.script = slow
                while len(broker.sent) < target and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(rng.random() * 0.04)
                process.kill()
            time.sleep(0.05)  # the broker still stores what is on the connection
            twice += QUEUES
        broker.script = lambda _: None
        assert run_command(*flags(path, broker)).code == 0
        for queue_id in range(QUEUES):
            texts = [each.body.decode() for each in broker.stored("orders", queue_id)]
            serials = [int(each.partition("/")[2]) for each in texts]
            assert sorted(set(serials)) == list(range(MESSAGES))
            assert serials == sorted(serials)  # a repetition comes at once after the first copy
        assert len(broker.sent) - QUEUES * MESSAGES <= twice
        ids = {(each.origin, each.properties["UNIQ_KEY"]) for each in broker.sent}
        assert len(ids) == QUEUES * MESSAGES
