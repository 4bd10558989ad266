import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import segmentlog
from segmentlog.command import incoming
from segmentlog.command.output.json_lines import json_lines
from segmentlog.store import MessageStore, Outgoing, StoreConfig
from segmentlog.store.directory.topics import DEFAULT_QUEUES, topic_queues
from segmentlog.store.groups import group_offsets
from support.commands import Ran, run_command
from support.lock_holders import held_elsewhere

CONFIG = StoreConfig(segment_bytes=1 << 16, queue_segment_entries=100, index_slots=20, index_entries=80)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A store with one message in topic ``orders``."""
    with MessageStore.open(tmp_path / "target", CONFIG) as store:
        store.append(Outgoing(topic="orders", body=b"first"))
    return tmp_path / "target"


def rows(store: Path, topic: str = "orders") -> list[dict[str, Any]]:
    names = ("queueId", "queueOffset", "body", "tags", "keys", "uniqKey", "properties", "bornTimestamp", "flag")
    with segmentlog.open(store) as opened:
        return opened.scan(topic, columns=names).to_arrow().sort_by([("queueId", "ascending")]).to_pylist()


def bodies(store: Path, topic: str = "orders") -> list[bytes]:
    return [row["body"] for row in rows(store, topic)]


def put_json(store: Path, *objects: object, flags: tuple[object, ...] = ()) -> Ran:
    text = "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in objects)
    return run_command("put", store, *flags, "--input", "jsonl", stdin=text.encode(errors="surrogatepass"))


def test_lines_are_messages(target: Path) -> None:
    ran = run_command("put", target, "orders", "--json", stdin=b"one\n\ntw\xff\r\nlast")
    assert ran.rows == [{"topic": "orders", "queueId": 0, "messages": 4, "firstOffset": 1, "lastOffset": 4}]
    assert bodies(target) == [b"first", b"one", b"", b"tw\xff\r", b"last"]


def test_flags_set_tags_keys_properties_and_queue(target: Path) -> None:
    flags = ("--tag", "paid", "--keys", "k1 k2", "--property", "region=eu=1", "--queue", 3)
    assert run_command("put", target, "orders", *flags, stdin=b"one\n").code == 0
    row = rows(target)[1]
    assert (row["queueId"], row["tags"], row["keys"]) == (3, "paid", "k1 k2")
    assert ("region", "eu=1") in row["properties"]
    with segmentlog.open(target) as store:
        assert store.find("orders", keys=["k2"]).to_arrow().num_rows == 1


def test_export_edit_import(store: Path, target: Path) -> None:
    """Messages as JSON lines are edited and put into another store; everything but the edit stays."""
    names = ("topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tags", "keys", "uniqKey", "flag")
    with segmentlog.open(store) as opened:
        table = opened.scan("orders", columns=(*names, "properties", "body")).to_arrow()
    exported = b"".join(bytes(json_lines(batch)) for batch in table.to_batches())
    edited = [json.loads(line) | {"tags": "edited"} for line in exported.splitlines()]
    ran = put_json(target, *edited, flags=("--json",))
    assert (ran.code, sum(row["messages"] for row in ran.rows)) == (0, 400)
    before, after = rows(store), [row for row in rows(target) if row["body"] != b"first"]
    assert [row["tags"] for row in after] == ["edited"] * 400
    for row in (*before, *after):
        row["properties"] = sorted(pair for pair in row["properties"] if pair[0] not in {"TAGS", "__CRC32#"})
        row["queueOffset"] -= 1 if row["queueId"] == 0 and row["tags"] == "edited" else 0
        del row["tags"]
    assert after == before


def test_bodies_are_text_or_hexadecimal(target: Path) -> None:
    assert put_json(target, {"topic": "orders", "body": "Bücher"}, {"topic": "orders", "bodyHex": "ff00"}).code == 0
    assert bodies(target)[1:] == ["Bücher".encode(), b"\xff\x00"]


def test_a_null_key_removes_the_property(target: Path) -> None:
    line = {"topic": "orders", "body": "x", "tags": None, "properties": {"TAGS": "old", "a": "1"}}
    assert put_json(target, line).code == 0
    row = rows(target)[1]
    assert row["tags"] is None
    assert ("TAGS", "old") not in row["properties"]
    assert ("a", "1") in row["properties"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{", "line 2 is not JSON: "),
        ("", "line 2 is not JSON: "),
        ("[", "line 2 is not JSON: "),
        ("[]", "line 2 is not a JSON object, it begins with `[`"),
        ("{}", "line 2 has no body"),
        ({"topic": "orders", "body": "x", "bodyHex": "ff"}, "line 2 has both `body` and `bodyHex`"),
        ({"topic": "orders", "bodyHex": 5}, "line 2 has `bodyHex` that is not a text"),
        ({"topic": "orders", "bodyHex": "f"}, "line 2 has `bodyHex` that is not hexadecimal"),
        ({"body": "x"}, "line 2 has no topic"),
        ({"topic": "orders", "body": 1}, "line 2 has `body` that is not a text"),
        ({"topic": "orders", "body": "x", "queueId": -1}, "line 2 has `queueId` below 0"),
        ({"topic": "orders", "body": "x", "queueId": True}, "line 2 has `queueId` that is not a 32-bit number"),
        ({"topic": "orders", "body": "x", "flag": 1 << 40}, "line 2 has `flag` that is not a 32-bit number"),
        (
            {"topic": "orders", "body": "x", "bornTimestamp": "noon"},
            "line 2 has `bornTimestamp` that is not a time with",
        ),
        ({"topic": "orders", "body": "x", "bornTimestamp": "2026-01-01T00:00:00"}, "that is not a time with a zone"),
        (
            {"topic": "orders", "body": "x", "properties": {"a": 1}},
            "line 2 has `properties` that is not an object of text",
        ),
        ({"topic": "orders", "body": "x", "tagz": "a"}, "line 2 has a key `tagz` that no message has"),
        ('{"topic": "orders", "body": "\\ud800"}', "line 2 holds half of a character"),
        ({"topic": "orders", "body": "x", "bornHost": "nowhere"}, "line 2: "),
        ({"topic": "ordrs", "body": "x"}, "line 2: there is no topic `ordrs`"),
        ({"topic": "orders", "body": "x" * 5_000_000}, "line 2: MESSAGE_ILLEGAL: the body of this line has 5000000"),
    ],
)
def test_a_bad_line_is_refused_and_earlier_lines_are_appended(line: object, found: str, target: Path) -> None:
    good = {"topic": "orders", "body": "good"}
    ran = put_json(target, good, line, good, flags=("--json",))
    assert found in ran.error["found"]
    assert "tagz" not in found or ran.error["remedy"].startswith("Did you mean `tags`?")
    assert "Lines 1 to 1 were appended; `tail -n +2` selects the others" in ran.error["remedy"]
    assert bodies(target) == [b"first", b"good"]


def test_a_bad_line_that_is_not_utf_8(target: Path) -> None:
    ran = run_command("put", target, "--input", "jsonl", stdin=b'{"topic": "orders", "body": "\xff"}\n')
    assert "line 1 is not UTF-8 at byte 29" in ran.err
    assert "Nothing was appended" in ran.err


def test_the_first_of_many_bad_lines_is_found(target: Path) -> None:
    lines = [b"x" * (20 if number in {77, 90} else 3) for number in range(1, 101)]
    ran = run_command("put", target, "orders", "--max-body-bytes", 10, stdin=b"\n".join(lines))
    assert "standard input: line 77: MESSAGE_ILLEGAL: the body of this line has 20 bytes" in ran.err
    assert "--max-body-bytes raises the limit" in ran.err
    assert len(bodies(target)) == 77


def test_a_dry_run_checks_and_changes_nothing(target: Path) -> None:
    def files() -> dict[str, tuple[int, int]]:
        return {str(each): (each.stat().st_size, each.stat().st_mtime_ns) for each in target.rglob("*")}

    before = files()
    ran = run_command("put", target, "orders", "--dry-run", "--json", stdin=b"one\ntwo\n")
    assert ran.rows == [{"topic": "orders", "queueId": 0, "messages": 2, "firstOffset": None, "lastOffset": None}]
    refused = run_command("put", target, "orders", "--dry-run", "--max-body-bytes", 5, stdin=b"one\nlonger\n")
    assert refused.code == 2
    assert "line 2" in refused.err
    assert "Nothing was appended" in refused.err
    assert files() == before


def test_no_line_is_not_found(target: Path) -> None:
    ran = run_command("put", target, "orders", "--json")
    assert (ran.code, ran.out) == (1, b"")


def test_a_misspelled_topic_or_store_is_not_created(target: Path, tmp_path: Path) -> None:
    error = run_command("put", target, "ordrs", "--json", stdin=b"x\n").error
    assert error["found"] == "TOPIC: there is no topic `ordrs`"
    assert error["remedy"].startswith("Did you mean `orders`? --create makes it")
    assert run_command("put", tmp_path / "no", "orders", "--json", stdin=b"x\n").error["remedy"].startswith("--create")
    assert not (tmp_path / "no").exists()
    assert run_command("put", tmp_path / "no", "orders", "--create", stdin=b"x\n").code == 0
    assert bodies(tmp_path / "no") == [b"x"]
    queues = topic_queues(target)["orders"]
    assert run_command("put", target, "refunds", "--create", stdin=b"x\n").code == 0
    assert run_command("put", target, "orders", "--create", stdin=b"x\n").code == 0
    assert (topic_queues(target)["refunds"], topic_queues(target)["orders"]) == (DEFAULT_QUEUES, queues)
    assert bodies(target, "refunds") == [b"x"]


def test_delayed_messages_have_no_offset_yet(target: Path) -> None:
    lines = [{"topic": "orders", "body": "later", "properties": {"DELAY": "3"}}, {"topic": "orders", "body": "now"}]
    (row,) = put_json(target, *lines, flags=("--json",)).rows
    assert (row["messages"], row["firstOffset"], row["lastOffset"]) == (2, 1, 1)


def test_ctrl_c_keeps_the_lines_that_were_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_lines = incoming._whole_lines

    def interrupted(stdin: object) -> Iterator[bytes]:
        yield from whole_lines(stdin)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(incoming, "_whole_lines", interrupted)
    ran = run_command("put", tmp_path / "s", "orders", "--create", stdin=b"one\ntwo\n")
    assert (ran.code, ran.out, ran.err) == (130, b"", "")
    monkeypatch.undo()
    rows = run_command("cat", tmp_path / "s", "orders", "--json").rows
    assert [row["body"] for row in rows] == ["one", "two"]


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    """A copy of the store, in which group ``etl`` is at offset 20 of the four queues of ``orders``."""
    shutil.copytree(store, tmp_path / "broker-a")
    return tmp_path / "broker-a"


def positions(store: Path, group: str = "etl") -> dict[tuple[str, int], int]:
    return {(key.topic, key.queue_id): offset for key, offset in group_offsets(str(store), group).items()}


def test_a_dry_run_prints_the_change_and_changes_nothing(copy: Path) -> None:
    before = positions(copy)
    ran = run_command("reset-offset", copy, "etl", "--earliest", "--dry-run", "--json")
    assert ran.rows == [
        {"group": "etl", "topic": "orders", "queueId": queue, "before": 20, "after": 0, "recorded": "nowhere"}
        for queue in range(4)
    ]
    assert positions(copy) == before


@pytest.mark.parametrize(
    ("flags", "after"),
    [
        (("--earliest",), [0] * 4),
        (("--latest",), [100] * 4),
        (("--to-offset", "70"), [70] * 4),
        (("--to-offset", "700"), [100] * 4),
        (("--to-time", "2026-01-31T00:00:42Z"), [11, 11, 10, 10]),
        (("--to-time", "@1769817642000", "--boundary", "upper"), [10, 10, 10, 9]),
    ],
)
def test_positions_after_it(copy: Path, flags: tuple[str, ...], after: list[int]) -> None:
    ran = run_command("reset-offset", copy, "etl", *flags, "--json")
    assert [row["after"] for row in ran.rows] == after
    assert [positions(copy)["orders", queue] for queue in range(4)] == after


def recorded(out: bytes) -> set[str]:
    return {json.loads(line)["recorded"] for line in out.splitlines()}


def test_a_change_beside_a_broker_is_not_a_success(copy: Path) -> None:
    """Its consumers do not see the change, and a script looks at exit codes."""
    words = ("reset-offset", copy, "etl", "--to-offset")
    with held_elsewhere(copy):
        ran = run_command(*words, "7", "--json")
        assert (ran.code, recorded(ran.out)) == (1, {"sidecar"})
        assert positions(copy)["orders", 0] == 7
        ran = run_command(*words, "8", "--beside-broker", "--json")
        assert (ran.code, recorded(ran.out)) == (0, {"sidecar"})
        assert run_command(*words, "9", "--dry-run").code == 0
    ran = run_command(*words, "9", "--json")
    assert (ran.code, recorded(ran.out)) == (0, {"store"})


def test_a_topic_that_is_new_to_the_group(copy: Path) -> None:
    rows = run_command("reset-offset", copy, "etl", "--topic", "payments", "--latest", "--json").rows
    assert [(row["topic"], row["before"], row["after"]) for row in rows] == [("payments", None, 100)] * 4
    assert positions(copy)["orders", 0] == 20
