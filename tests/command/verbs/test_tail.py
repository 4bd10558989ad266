"""Verb ``tail``."""

import json
import subprocess
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing
from support.commands import INSTALLED, run_command


def keys(*flags: object) -> list[str]:
    return [row["keys"] for row in run_command("tail", *flags, "--json").rows]


def test_the_last_messages_of_all_queues(store: Path) -> None:
    assert keys(store, "orders") == [f"key-{number}" for number in range(390, 400)]
    assert keys(store, "orders", "-n", "3") == ["key-397", "key-398", "key-399"]
    assert keys(store, "orders", "-p", "1", "-n", "2") == ["key-393", "key-397"]
    assert len(keys(store, "orders", "-n", "1000")) == 400
    assert run_command("tail", store, "orders", "-n", "0").code == 1


def test_the_last_messages_that_a_filter_accepts(store: Path) -> None:
    assert keys(store, "orders", "--tag", "paid", "-n", "3") == ["key-394", "key-396", "key-398"]
    assert keys(store, "orders", "--sql", "KEYS = 'key-5' OR TAGS IS NULL", "-n", "1") == ["key-5"]
    assert keys(store, "orders", "--sql", "KEYS = 'key-5'") == ["key-5"]
    assert keys(store, "orders", "--grep", "message 1", "-n", "2") == ["key-198", "key-199"]


def test_tail_prints_the_requested_columns_and_properties(store: Path) -> None:
    flags = ["-n", "1", "--columns", "body,queueId", "--properties", "KEYS"]
    (row,) = run_command("tail", store, "orders", *flags, "--json").rows
    assert list(row) == ["body", "queueId", "KEYS"]
    assert run_command("tail", store, "orders", "-n", "1", "--format", r"%o %s\n").out == b"99 message 399 ........\n"


@pytest.mark.slow
def test_following_continues_after_the_last_messages(tmp_path: Path) -> None:
    """Every message once: some are appended before, some while it runs; a table has one head."""
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        for number in range(5):
            store.append(Outgoing(topic="t", queue_id=number % 2, body=b"%d" % number))
        with subprocess.Popen(
            [INSTALLED, "tail", path, "t", "-f", "-n", "2", "--timeout", "2", "--json", "--columns", "body"],
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            first = [json.loads(process.stdout.readline())["body"] for _ in range(2)]
            for number in range(5, 8):
                store.append(Outgoing(topic="t", queue_id=number % 3, body=b"%d" % number))
            rest = [json.loads(line)["body"] for line in process.stdout]
    assert first == ["3", "4"]
    assert sorted(rest) == ["5", "6", "7"]
    assert process.returncode == 0


def test_a_live_table_has_one_head(store: Path) -> None:
    ran = run_command("tail", store, "orders", "-f", "-n", "3", "--timeout", "0.05", terminal=True)
    assert ran.text.count("queueOffset") == 1
    assert len(ran.text.splitlines()) == 5


@pytest.mark.slow
def test_each_followed_message_is_printed_before_the_next_append(tmp_path: Path) -> None:
    """Benchmarks measure the time between the two."""
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        store.append(Outgoing(topic="t", queue_id=0, body=b"0"))
        with subprocess.Popen(
            [INSTALLED, "tail", path, "t", "-f", "--format", r"%s\n"], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"0\n"
            for number in range(1, 11):
                store.append(Outgoing(topic="t", queue_id=0, body=b"%d" % number))
                assert process.stdout.readline() == b"%d\n" % number
            process.terminate()
