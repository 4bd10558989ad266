import json
import os
from pathlib import Path

import pytest

import segmentlog
from segmentlog.command.selection import MESSAGE_COLUMNS
from segmentlog.store import MessageStore, Outgoing
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.log.confirmed import ConfirmationFile
from support.commands import run_command
from support.small_store import write_small_store
from support.tampering import put_at, segments


def test_cat_prints_the_rows_of_a_scan(store: Path) -> None:
    rows = run_command("cat", store, "orders", "payments", "--json").rows
    scan = segmentlog.open(store).scan(["orders", "payments"], columns=["topic", "queueId", "queueOffset", "body"])
    expected = [row | {"body": row["body"].decode()} for row in scan.to_arrow().to_pylist()]
    assert [{name: row[name] for name in expected[0]} for row in rows] == expected
    assert list(rows[0]) == list(MESSAGE_COLUMNS)


def test_a_message_is_complete(store: Path) -> None:
    (row,) = run_command("cat", store, "orders", "-p", "2", "-n", "1", "--json").rows
    assert row == {
        "topic": "orders",
        "queueId": 2,
        "queueOffset": 0,
        "storeTimestamp": "2026-01-31T00:00:02.000Z",
        "bornTimestamp": "2026-01-31T00:00:02.000Z",
        "tags": "paid",
        "keys": "key-2",
        "uniqKey": f"{2:032X}",
        "flag": 0,
        "properties": {"TAGS": "paid", "KEYS": "key-2", "UNIQ_KEY": f"{2:032X}"},
        "body": "message 2 ..........",
    }


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (["--from", "s@1769817990000", "--to", "e@1769817995000"], 5),
        (["--tag", "paid || nothing"], 200),
        (["--sql", "KEYS = 'key-5' OR TAGS IS NULL"], 1),
        (["-n", "7"], 7),
        (["--grep", "message 1"], 111),
        (["--grep", "message 1", "-n", "7"], 7),
        (["--grep", "MESSAGE 17 ", "--ignore-case", "--tag", "paid"], 0),
        (["--grep", os.fsdecode(b"\xff")], 0),
        (["--regex", "message 1[0-9] ", "--grep", "7"], 1),
        (["--json-path", "$.a", "--equals", "1"], 0),
        (["--from", "-3", "-p", "1"], 3),
        (["--day", "2026-01-31"], 400),
        (["--day", "2026-01-30"], 0),
        (["-n", "0"], 0),
    ],
)
def test_selections(store: Path, flags: list[str], count: int) -> None:
    ran = run_command("cat", store, "orders", "--json", *flags)
    assert len(ran.rows) == count
    assert ran.code == (0 if count else 1)


def test_columns_of_bodies(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path) as written:
        for body in b'{"id":1,"x":NaN,"l":[{"d":"2026-01-31","s":"\x7f\\u0085"}],"keys":"k"}', b"{":
            written.append(Outgoing(topic="t", queue_id=0, body=body))
    schema = 'id int, x double, l array<struct<d: date, s: string>>, `"` int, keys string'
    flags = ["--body", "json", "--schema", schema]
    first, second = run_command("cat", path, "t", *flags, "--json").rows
    names = ["id", "x", "l", '"', "keys", "bodyError"]
    assert [first[name] for name in names] == [1, "nan", [{"d": "2026-01-31", "s": "\x7f\x85"}], None, "k", None]
    assert [second[name] for name in names] == [None] * 5 + ["the body is not a JSON object"]
    assert "body" not in first
    assert r"\u007f\u0085" in run_command("cat", path, "t", *flags, "--json").out.decode()
    (tmp_path / "schema").write_text(schema)
    flags[-1] = str(tmp_path / "schema")
    asked = ["--columns", "queueOffset", *flags]
    assert run_command("cat", path, "t", *asked, "-o", "csv").out.decode().splitlines()[1].startswith("0,1,nan,")
    assert '[{"d": "2026-01-31"' in run_command("cat", path, "t", *asked).out.decode()
    assert run_command("cat", path, "t", *flags, "-f", r"%o %{id}\n", "-n", "1").out == b"0 1\n"
    assert "--schema needs --body" in run_command("cat", path, "t", "--schema", "a int").err


def test_a_table_has_few_columns(store: Path) -> None:
    lines = run_command("cat", store, "orders", "-n", "1").text.splitlines()
    assert lines[0].split() == ["topic", "queueId", "queueOffset", "storeTimestamp", "tags", "keys", "body"]
    assert len(lines) == 3


def test_a_template_as_of_kcat(store: Path) -> None:
    ran = run_command("cat", store, "orders", "-p", "3", "--from", "-2", "-f", r"%t/%p %o %k: %s\n")
    assert ran.out == b"orders/3 98 key-395: message 395 ........\norders/3 99 key-399: message 399 ........\n"
    flags = ["--properties", "TAGS", "-f", r"%{TAGS}\n", "-n", "1"]
    assert run_command("cat", store, "orders", "-p", "2", *flags).out == b"paid\n"
    assert run_command("cat", store, "orders", "-f", "%s", "--json").error["found"].startswith("the template is passed")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Bodies that are no text, or would command a terminal."""
    with MessageStore.open(tmp_path / "odd") as opened:
        for body in (b"\xff\x00", b"\x1b]0;owned\x07", "Grüße \u202e".encode(), b""):
            opened.append(Outgoing(topic="odd", queue_id=0, body=body))
    return tmp_path / "odd"


@pytest.mark.parametrize(
    "words", ["cat", "cat -o csv", "cat --json", "cat -o json", r"cat -f %s\n", "dump -n 9", "dump -n 9 --json"]
)
def test_no_message_commands_a_terminal(odd: Path, words: str) -> None:
    verb, *flags = words.split()
    text = run_command(verb, odd, *(["odd"] if verb == "cat" else []), *flags, terminal=True).text
    assert "owned" in text or verb == "dump"
    assert not {c for c in text if ord(c) < 0x20} - {"\n", "\x1b"}
    assert "\x1b]" not in text


def test_damage_fails_unless_it_is_skipped(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    first = segments(store)[0]
    put_at(first, first.read_bytes().index(b"body 6 ") - 84, b"####")  # its magic number
    ran = run_command("cat", store, "orders", "-o", "json")
    assert ran.code == 2
    error = json.loads(ran.err)["error"]
    assert error["code"] == "SEGMENTLOG_CORRUPT_RECORD"
    assert error["remedy"] == "--on-corrupt skip goes on without damaged records, and null keeps their places"
    assert not ran.text.endswith("]\n")
    assert run_command("cat", store, "orders", "--on-corrupt", "skip", "-o", "json").code == 0


def test_confirmed_messages(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store) as writer:
        for number in range(5):
            writer.append(Outgoing(topic="orders", body=b"%d" % number, queue_id=number % 2))
    ran = run_command("cat", store, "orders", "--read-from", "confirmed", "--json")
    assert (ran.code, ran.out) == (2, b"")
    assert "no master publishes a confirmed offset in this store" in ran.err
    places = run_command("cat", store, "orders", "--columns", "physicalOffset", "--json").rows
    third = sorted(row["physicalOffset"] for row in places)[2]
    with ConfirmationFile(LocalWritableFileSystem(), str(store), 2) as file:
        file.publish(third, 2)
        for verb in ("cat", "tail"):
            rows = run_command(verb, store, "orders", "--read-from", "confirmed", "--json").rows
            assert len(rows) == 2, verb
