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


def test_a_live_table_has_one_head(store: Path) -> None:
    ran = run_command("tail", store, "orders", "-f", "-n", "3", "--timeout", "0.05", terminal=True)
    assert ran.text.count("queueOffset") == 1
    assert len(ran.text.splitlines()) == 5


@pytest.mark.slow
def test_each_followed_message_is_printed_before_the_next_append(tmp_path: Path) -> None:
    """Benchmarks measure the time between the two."""
    path, follow = tmp_path / "store", ["-f", "-n", "2", "--format", r"%s\n"]
    with MessageStore.open(path) as store:
        for number in range(5):
            store.append(Outgoing(topic="t", queue_id=number % 2, body=b"%d" % number))
        with subprocess.Popen([INSTALLED, "tail", path, "t", *follow], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == [b"3\n", b"4\n"]
            for number in range(5, 15):
                store.append(Outgoing(topic="t", queue_id=number % 3, body=b"%d" % number))
                assert process.stdout.readline() == b"%d\n" % number
            process.terminate()
