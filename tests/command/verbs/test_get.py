from pathlib import Path

import pytest

import segmentlog
from support.commands import Ran, run_command


def get(store: Path, *flags: object) -> Ran:
    return run_command("get", store, *flags, "--json")


@pytest.fixture
def message(store: Path) -> segmentlog.store.Message:
    found = segmentlog.open(store).get(topic="orders", queue=3, offset=1)
    assert found is not None
    return found


def test_each_way_finds_the_same_message(store: Path, message: segmentlog.store.Message) -> None:
    (row,) = get(store, "--key", "key-7", "--topic", "orders").rows
    assert row["body"] == message.body.decode()
    assert get(store, "--id", message.message_id).rows == [row]
    assert get(store, "--unique-key", f"{7:032X}", "--topic", "orders").rows == [row]
    assert get(store, "--uniq-key", f"{7:032X}", "--topic", "orders").rows == [row]
    assert get(store, "--topic", "orders", "-p", 3, "--offset", 1).rows == [row]
    assert get(store, "--physical-offset", message.physical_offset).rows == [row]


def test_keys_are_looked_up_in_all_topics_and_times(store: Path) -> None:
    assert [row["topic"] for row in get(store, "--key", "key-7").rows] == ["orders", "payments"]
    assert [row["topic"] for row in get(store, "--key", "key-7", "--newest-first").rows] == ["payments", "orders"]
    assert [row["keys"] for row in get(store, "--key", "key-7", "--key", "key-9", "--topic", "orders").rows] == [
        "key-7",
        "key-9",
    ]
    assert get(store, "--key", "key-7", "--to", "2026-01-31T00:00:07Z").code == 1
    assert len(get(store, "--key", "key-7", "--from", "2026-01-31T00:00:07Z").rows) == 2


def test_an_absent_message_exits_with_1_and_prints_nothing(store: Path) -> None:
    for flags in (
        ["--key", "nothing"],
        ["--unique-key", "nothing"],
        ["--topic", "orders", "-p", "0", "--offset", "100"],
        ["--physical-offset", "7"],
        ["--id", "7F00000100002A9F0000000000FFFFFF"],
    ):
        ran = get(store, *flags)
        assert (ran.code, ran.out, ran.err) == (1, b"", "")


def test_one_of_two_keys_is_not_found(store: Path) -> None:
    ran = get(store, "--key", "key-7", "--key", "nothing")
    assert (ran.code, len(ran.rows)) == (1, 2)
    shown = run_command("get", store, "--key", "key-7", "--key", "nothing", terminal=True)
    assert shown.err == "not found: `nothing`\n"


def test_a_template(store: Path) -> None:
    ran = run_command("queryMsgByKey", store, "--key", "key-7", "--topic", "orders", "-f", r"%p %s\n")
    assert ran.out == b"3 message 7 ..........\n"
