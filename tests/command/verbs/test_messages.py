import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import segmentlog
from segmentlog.command.selection import MESSAGE_COLUMNS
from segmentlog.store import MessageStore, Outgoing
from support.commands import INSTALLED, Ran, run_command
from support.small_store import write_small_store
from support.store_builder import StoreBuilder, messages
from support.system_store import CONFIG, build_system_store
from support.tampering import put_at, segments


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
    assert list(row) == list(MESSAGE_COLUMNS)


@pytest.mark.parametrize(
    ("flags", "count"),
    [
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
    assert "\x1b" not in "".join(lines)
    assert "\x1b[1mtopic" in run_command("cat", store, "orders", "-n", "1", terminal=True).text


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


def test_an_array_is_not_closed_after_an_error(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    first = segments(store)[0]
    put_at(first, first.read_bytes().index(b"body 6 ") - 84, b"####")  # its magic number
    ran = run_command("cat", store, "orders", "-o", "json")
    assert (ran.code, json.loads(ran.err)["error"]["code"]) == (2, "SEGMENTLOG_CORRUPT_RECORD")
    assert not ran.text.endswith("]\n")


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


@pytest.fixture
def brokers(store: Path, tmp_path: Path) -> str:
    """Return a pattern of two stores; of the second one only refunds are of its own."""
    shutil.copytree(store, tmp_path / "brokers" / "a")
    with StoreBuilder(tmp_path / "brokers" / "b") as builder:
        for topic in ("orders", "refunds"):
            builder.append(messages(20, topic=topic, queues=5 if topic == "refunds" else 4))
    return f"{tmp_path}/brokers/*"


def test_messages_of_a_pattern_of_stores(brokers: str) -> None:
    rows = run_command("cat", brokers, "orders", "--json").rows
    assert Counter(row["brokerName"] for row in rows) == {"a": 400, "b": 20}
    assert {row["brokerName"] for row in run_command("cat", brokers, "refunds", "--json").rows} == {"b"}
    assert len(run_command("cat", brokers, "orders", "-n", 405, "--json").rows) == 405
    queues = run_command("cat", brokers, "orders", "refunds", "-p", 4, "--json").rows
    assert [(row["brokerName"], row["topic"]) for row in queues] == [("b", "refunds")] * 4
    assert run_command("cat", brokers, "orders").text.startswith("brokerName")
    assert run_command("cat", brokers, "orders", "-f", "%{brokerName} %o\n", "-n", 1).text == "a 0\n"
    assert run_command("cat", brokers, "ordrs", "--json").error["remedy"].startswith("Did you mean `orders`?")
    assert "there is no queue 9" in run_command("cat", brokers, "orders", "-p", 9, "--json").error["found"]


def test_look_ups_of_a_pattern_of_stores(brokers: str) -> None:
    def found(*flags: object) -> list[tuple[str, str]]:
        return [(row["brokerName"], row["topic"]) for row in run_command("get", brokers, *flags, "--json").rows]

    assert found("--key", "key-7", "--topic", "orders") == [("a", "orders"), ("b", "orders")]
    assert found("--key", "key-7") == [("a", "orders"), ("a", "payments"), ("b", "orders"), ("b", "refunds")]
    assert found("--key", "key-399") == [("a", "orders"), ("a", "payments")]
    assert run_command("get", brokers, "--key", "nope").err.endswith("not found: `nope`\n")
    assert found("--key", "key-7", "--topic", "refunds") == [("b", "refunds")]
    assert "is a place in one store" in run_command("get", brokers, "--physical-offset", 0, "--json").error["found"]
    assert "there is no topic" in run_command("get", brokers, "--key", "k", "--topic", "x", "--json").error["found"]
    assert found("--key", "key-7", "--topic", "^(pay|ref)") == [("a", "payments"), ("b", "refunds")]
    store = f"{brokers.removesuffix('*')}a"
    several = run_command("get", store, "--topic", "^o", "-p", 0, "--offset", 0, "--json").error["found"]
    assert several == "--offset needs one --topic and -p"


@pytest.mark.parametrize("words", ["tail {} orders", "dump {}", "offsets {} --at now", "put {} orders"])
def test_other_verbs_take_one_store(brokers: str, words: str) -> None:
    ran = run_command(*words.format(brokers).split())
    assert ran.code == 2
    assert "this is a pattern of stores" in ran.err


def test_an_absent_message_exits_with_1_and_tells_what_there_is(store: Path) -> None:
    for flags in (
        ["--key", "nothing"],
        ["--unique-key", "nothing"],
        ["--topic", "orders", "-p", "0", "--offset", "100"],
        ["--physical-offset", "7"],
        ["--id", "7F00000100002A9F0000000000FFFFFF"],
    ):
        ran = get(store, *flags)
        assert (ran.code, ran.out) == (1, b"")
        times = "stored from 2026-01-31T00:00:00Z to 2026-01-31T00:06:"
        assert re.match(rf"no message was found: (the store|`orders`) has \d+ messages, {times}", ran.err)
        assert f"not found: `{flags[-1].lower()}`\n" in ran.err.lower()


def test_one_of_two_keys_is_not_found(store: Path) -> None:
    ran = get(store, "--key", "key-7", "--key", "nothing")
    assert (ran.code, len(ran.rows)) == (1, 2)
    assert ran.err == "not found: `nothing`\n"


def test_a_template(store: Path) -> None:
    ran = run_command("queryMsgByKey", store, "--key", "key-7", "--topic", "orders", "-f", r"%p %s\n")
    assert ran.out == b"3 message 7 ..........\n"


def test_a_record_field_by_field(store: Path) -> None:
    ran = run_command("dump", store, "--json")
    assert ran.code == 0
    by_name = {row["field"]: row for row in ran.rows}
    assert by_name["topic"]["value"] == "orders"
    assert bytes.fromhex(by_name["body"]["bytes"]) == b"message 0 .........."
    assert (by_name["body"]["position"], by_name["body"]["item"]) == (88, 0)
    joined = b"".join(bytes.fromhex(row["bytes"]) for row in ran.rows)
    assert joined == segments(store)[0].read_bytes()[: len(joined)]
    assert len({row["item"] for row in run_command("dump", store, "-n", "5", "--json").rows}) == 5


def test_entries_of_a_queue(store: Path) -> None:
    rows = run_command("dump", store, "--topic", "orders", "-p", "1", "--offset", "60", "-n", "2", "--json").rows
    assert [(row["item"], row["field"]) for row in rows] == [
        (item, field) for item in (60, 61) for field in ("physical_offset", "size", "tags_code")
    ]
    dumped = run_command("dump", store, "--physical-offset", rows[0]["value"], "--json").rows
    assert {row["field"]: row["value"] for row in dumped}["queue_offset"] == "60"


def test_damage_is_shown_and_is_a_finding(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    put_at(segments(store)[0], 90, b"##")
    ran = run_command("dump", store, "--json")
    assert ran.code == 1
    assert ran.rows[-1]["field"] == "problem"
    assert ran.rows[-1]["value"].startswith("the CRC-32 of the body")


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (["orders"], ["level", "timer"]),
        (["payments"], []),
        (["-n", "1"], ["level"]),
        (["--day", "2023-11-14"], ["level", "timer"]),
        (["--from", "2023-11-14T22:13:21Z"], ["timer"]),
        (["--to", "2023-11-14T22:13:21Z"], ["level"]),
    ],
)
def test_topics_times_and_numbers_limit_the_rows(flags: list[str], kinds: list[str], tmp_path: Path) -> None:
    ran = run_command("delayed", build_system_store(tmp_path / "broker-a"), *flags, "--json")
    assert ([row["kind"] for row in ran.rows], ran.code) == (kinds, 0 if kinds else 1)


def test_check_shows_late_missing_and_repeated_deliveries(tmp_path: Path) -> None:
    path = build_system_store(tmp_path / "broker-a")
    ran = run_command("delayed", path, "--check", "--json")
    assert ([row["delivery"] for row in ran.rows], ran.code) == (["late", "late"], 1)
    assert ran.err == "2 delayed messages: 2 late\n"
    ran = run_command("delayed", path, "--check", "-n", "1", "--json")
    assert ([row["uniqKey"] for row in ran.rows], ran.code, ran.err) == (["L"], 1, "2 delayed messages: 2 late\n")
    with MessageStore.open(path, CONFIG) as store:
        for key in ("L", "T"):
            store.append(Outgoing(topic="orders", body=b"x", uniq_key=key))
    ran = run_command("delayed", path, "--check", "--json")
    assert (ran.text, ran.code, ran.err) == ("", 0, "2 delayed messages: 2 once\n")
    ran = run_command("delayed", path, "--check", "--all", "--json")
    shown = list(map(json.loads, ran.text.splitlines()))
    expected = segmentlog.open(path).deliveries().to_arrow()
    assert [list(row) for row in shown] == [expected.schema.names] * 2
    assert [row["deliveries"] for row in shown] == expected["deliveries"].to_pylist() == [1, 1]
    ran = run_command("delayed", path, "none", "--check", "--json")
    assert (ran.text, ran.code, ran.err) == ("", 0, "no delayed message was found\n")
    assert "Add --check" in run_command("delayed", path, "--all").err
