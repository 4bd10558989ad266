import json
from pathlib import Path
from typing import Any

import pytest

from segmentlog.command.catalogue import VERBS
from support.commands import run_command

REQUIRED: dict[str, tuple[str, ...]] = {
    "offsets": ("--at", "@0"),
    "cat": ("orders",),
    "tail": ("orders",),
    "get": ("--key", "k"),
    "dump": ("--physical-offset", "0"),
    "put": ("orders",),
    "reset-offset": ("etl", "--latest"),
    "salvage": ("copy",),
    "backfill": ("orders", "--day", "2026-01-31", "--to", "lake"),
    "diff": ("copy",),
    "replay": ("copy", "orders", "--state", "state"),
    "resend": ("orders", "--broker", "localhost:10911", "--dry-run"),
    "archive": ("s3://bucket/archive",),
    "demote": ("--master", "localhost:10912"),
}
"""Words after the store, without which a verb asks for them first."""
WRONG: dict[str, str] = {
    "archive pusch a b": "`pusch` is unknown",
    "archive push a": "push takes STORE and URL, got 1 argument",
    "archive ls s3://b/a rows": "there is no table `rows`",
    "archive verify s3://b/a pieces": "verify takes URL, got 2 arguments",
    "archive ls s3://b/a --deep": "--deep is a flag of verify, not of ls",
    "archive push a s3://b/a --from now": "--from is a flag of pull, not of push",
    "archive prune s3://b/a": "prune takes --before TIME or --keep AGE",
    "archive prune s3://b/a --keep 0": "`0` is not an age above 0",
    "archive prune s3://b/a --keep x": "Write a number of days, or such as 90d or 12h",
    "archive push s u --every 10": "Give its unit, too",
    "archive push s u --every 0s": "`0s` is not an interval of up to a year",
    "archive push s u --every 9999999d": "is not an interval of up to a year",
    "archive push s u --listen :1": "--listen is passed without --every",
    "archive push s u --max-bytes 1g": "--max-bytes is a flag of prune",
    "archive ls u --every 10m": "--every is a flag of push",
    "archive prune u --keep 3d --before now": "Leave --before or --keep out",
    f"archive prune u --keep {'9' * 400}": "is not an age above 0",
    "archive prune u --max-bytes much": "such as 64m or 1g",
    "archive ls s3://b/a --storage secret": "is not an option of an object store",
    "archive ls /data/archive": "For a directory, write file:///data/archive",
    "backfill STORE orders --to NEW": "the period has no start",
    "backfill STORE orders --to NEW --start 2026-01-31": "the period has no end",
    "backfill STORE orders --to NEW --day today --end now": "--day is passed with --start or --end",
    "backfill STORE orders --to NEW --day today --by topic,day": "`day` is not the first name",
    "backfill STORE orders --to NEW --day today --by topik": "Did you mean `topic`",
    "backfill STORE orders --to NEW --day today --output parket": "Did you mean `parquet`",
    "backfill STORE orders --to NEW --day monday": "is not a day",
    "backfill STORE orders --to NEW --day today --dead-letters x": "--dead-letters is for --body",
    "backfill STORE orders --to NEW --day today --body json": "needs --schema",
    "cat STORE": "Write `segmentlog cat STORE TOPIC …`; --help lists all flags",
    "cat STORE orders --tz berlin": "Did you mean `Europe/Berlin`?",
    "cat STORE orders --tz Asia/Shanghia": "Did you mean `Asia/Shanghai`?",
    "offsets STORE orders": "Write `segmentlog offsets STORE [TOPIC …] --at TIME`",
    "backfill STORE": "Write `segmentlog backfill STORE TOPIC … --to TARGET`",
    "demote": "Write `segmentlog demote STORE --master HOST:PORT`",
    "cat STORE orders,payments": "Name the topics one by one, not in one text.",
    "cat STORE orders -p 4": "there is no queue 4 of topic `orders`",
    "cat STORE orders -p x": "-p/--queue: `x` is not a list of queue numbers",
    "cat STORE orders --columns bdy": "columns: there is no column `bdy`",
    "cat STORE orders -f %{bdy}": "-f: there is no column `bdy`",
    "cat STORE orders --on-loss null": "--on-loss: `null` is unknown",
    "cat STORE orders --grep=": "--grep is empty",
    "cat STORE orders --regex a(": "--regex='a(' is not a regular expression: missing )",
    "cat STORE orders --body json --schema NEW.avsc": "--schema: No such file or directory",
    "cat STORE orders --body avro --schema schemas/order": "--schema: No such file or directory",
    "cat STORE orders --where a=1": "Did you mean `--sql`?",
    "cat STORE orders --limit 1": "Did you mean `--number`?",
    "cat STORE orders --until now": "Did you mean `--to`?",
    "query STORE": "Did you mean `get --key`?",
    "serch STORE": "Did you mean `cat --grep`?",
    "STORE": "The verb comes first: `segmentlog topics",
    "cat STORE orders --equals 1": "--equals needs --json-path",
    "cat STORE orders --ignore-case": "--ignore-case has nothing to compare",
    "completion": "the following arguments are required: SHELL",
    "completion basch": "Did you mean `bash`?",
    "demo --store-archive NEW": "there is no archive of a store here",
    "demote STORE": "the following arguments are required: --master",
    "demote STORE --master nowhere": "the address 'nowhere' is not host:port",
    "demote STORE --master h:1 --tls c k": "--tls: expected 3 arguments",
    "diff STORE STORE --by logs": "--by",
    "diff STORE STORE --processes 0": "--processes",
    "diff STORE STORE --processes 1_0": "`1_0` is not a number of processes",
    "diff STORE": "diff needs one store to compare",
    "diff STORE STORE --digests x": "diff needs one store to compare",
    "diff STORE --digests x --archive": "--archive or --commit-log-b is passed without B",
    "diff STORE --against x --by log": "--by is passed with --against",
    "doctor --stat": "there is no flag `--stat`",
    "doctor a b": "unexpected argument `b`",
    "dump STORE --topic orders": "-p and --offset are missing",
    "dump STORE --offset 3 -p 0": "--topic is missing",
    "dump STORE --topic orders -p 0 --offset 1 --physical-offset 1": "--physical-offset and --offset",
    "dump STORE --topic ordrs -p 0 --offset 1": "--topic: there is no topic `ordrs`",
    "dump STORE --topic orders -p 7 --offset 1": "there is no queue 7 of topic `orders`",
    "dump STORE --topic orders -p 0 --offset 1000": "entry 1000 of orders/0 is in no file",
    "dump STORE --physical-offset 999999999": "physical offset 999999999 is in no segment",
    "get STORE": "no flag says which message is meant",
    "get STORE --key a --id b": "--id and --key are passed together",
    "get STORE --offset 1": "--offset needs one --topic and -p",
    "get STORE --offset 1 --topic orders --topic payments -p 0": "--offset needs one --topic and -p",
    "get STORE --key a -p 0": "-p is passed with --key",
    "get STORE --id a --topic orders": "--topic is passed with --id",
    "get STORE --physical-offset 1 --from @1": "--from is passed with --physical-offset",
    "get STORE --offset 1 --topic orders -p 0 --newest-first": "--newest-first is passed with --offset",
    "get STORE --id x": "--id: 'x' is not a message id",
    "get STORE --key a --columns x": "--columns: there is no column `x`",
    "get STORE --key a --from noon": "--from: `noon` is not a time",
    "metrics STORE --listen 9877": "is not host:port",
    "metrics STORE --listen localhost:": "is not host:port",
    "metrics STORE --listen 192.0.2.1:9877": "--listen: nothing can listen at 192.0.2.1:9877",
    'cat STORE orders --from {"orders":{"00":1}}': "a queue id as key under `orders`, not `00`",
    "cat STORE orders --day 2026-11-31": "Use a date such as 2026-01-31, today or yesterday",
    "cat STORE orders --columns body,body": "--columns names `body` twice",
    "cat STORE orders --sql a==1": "Correct it there; a filter is such as",
    "metrics STORE --listen localhost:99999": "is not host:port",
    "offsets STORE": "the following arguments are required: --at",
    "offsets STORE --at noon": "--at: `noon` is not a time",
    "put STORE": "TOPIC is missing",
    "put STORE orders --input xml": "--input: `xml` is unknown",
    "put STORE orders --property region": "--property: `region` is not a property and its value",
    "put STORE orders --queue -1": "--queue",
    "put STORE orders more": "unexpected argument `more`",
    "replay STORE NEW orders": "--state",
    "replay STORE NEW orders --state s --speed 0": "`0` is not a pace",
    "replay STORE NEW orders --state s --speed fast": "`fast` is not a pace",
    "replay STORE NEW orders --state s --sink flush": "`flush` is not an option",
    "replay STORE NEW orders --state s --map-topic =b": "`=b` is not a pair of topics",
    "replay STORE NEW orders --state s --tag a --sql b": "--tag and --sql are passed together",
    "replicate": "the following arguments are required: BROKER:HAPORT, REPLICA",
    "replicate nowhere NEW": "the address 'nowhere' is not host:port",
    "replicate h:1 NEW --broker nowhere": "the address 'nowhere' is not host:port",
    "replicate h:1 NEW --flush often": "`often` is unknown",
    "replicate h:1 NEW --from middle": "`middle` is unknown",
    "replicate h:1 NEW --limit 0": "--limit: `0` is not a size",
    "replicate h:1 NEW --segment-bytes x": "--segment-bytes: `x` is not a size",
    "retention plan STORE --max-bytes 5x": "--max-bytes: `5x` is not a size: write bytes, or such as 64m or 1g",
    "retention plan STORE --rounds x": "--rounds: `x` is not a whole number",
    "serve STORE --in-sync-replicas x": "--in-sync-replicas: `x` is not a whole number",
    "salvage STORE NEW --queue-segment-entries -1": "--queue-segment-entries: `-1` is not a whole number",
    "backfill STORE orders --to NEW --file-mib 0": "--file-mib: `0` is not a number of MiB above 0",
    "replicate h:1 NEW --form last": "Did you mean `--from`?",
    "resend STORE orders --state s": "the target is missing, or named twice",
    "resend STORE orders --state s --broker a:1 --namesrv b:1": "the target is missing, or named twice",
    "resend STORE orders --broker a:1": "--state is missing",
    "resend STORE orders --broker nowhere --dry-run": "remedy: Write host:port, an IPv6 address in brackets",
    "resend STORE orders --broker a:1 --dry-run --map-topic a": "`a` is not a pair of topics",
    "resend STORE orders --broker a:1 --dry-run --map-topic a=b=c": "`a=b=c` is not a pair of topics",
    "resend STORE orders --broker a:1 --dry-run --rate 0": "`0` is not a rate",
    "resend STORE orders --broker a:1 --dry-run --rate +5": "`+5` is not a rate",
    "resend STORE orders --broker a:1 --dry-run --on-corrupt null": "`null` is unknown",
    "reset-offset STORE --latest": "the following arguments are required: GROUP",
    "reset-offset STORE new --latest": "--topic TOPIC gives a new group positions. The groups with a",
    "reset-offset STORE etl --latest --boundary lower": "--boundary is passed without --to-time",
    "reset-offset STORE etl": "one of the arguments --earliest --latest --to-time --to-offset is required",
    "reset-offset STORE etl --earliest --latest": "not allowed with argument --earliest",
    "reset-offset STORE etl --to-time noon": "--to-time: `noon` is not a time",
    "reset-offset STORE etl --to-time 2026-01-31T00:00:00": "has no time zone",
    "reset-offset STORE etl --to-offset -4": "--to-offset",
    "retention drop STORE": "`drop` is unknown",
    "retention plan STORE --hour 99": "--hour is 99",
    "retention plan STORE --disk-usage full": "--disk-usage: 'full' is not a percentage",
    "retention plan STORE --disk-usage 1,2,3": "'1,2,3' names more than two disks",
    "retention plan STORE --min-age orders": "`orders` is not a topic and a duration",
    "retention plan STORE --min-age orders=7": "its unit",
    "retention plan STORE --min-age orders=soon": "duration",
    "retention plan STORE --min-age orders=1d --min-age orders=2d": "topic orders twice",
    "retention plan STORE --max-bytes 0": "--max-bytes: `0` is not a size",
    "salvage s3://b/a NEW": "STORE: `s3://b/a` is a URL, and this verb takes a directory alone",
    "salvage STORE NEW --segment-bytes 65536": "--segment-bytes is 65536",
    "salvage STORE NEW --segment-bytes many": "--segment-bytes: ",
    "serve STORE --listen nowhere": "the address 'nowhere' is not host:port",
    "serve STORE --in-sync 2": "there is no flag `--in-sync`",
    "stats STORE --watch 0": "--watch",
}
"""Command lines with a known store and a path that does not exist, and the error of each."""
WITH_STORE = [verb.name for verb in VERBS if verb.name not in {"doctor", "demo", "completion", "replicate"}]
WITH_ROWS = ["topics", "queues", "segments", "groups", "lag", "offsets", "cat", "tail", "get", "put", "reset-offset"]
WITH_TOPIC = {
    "queues": ("ordrs",),
    "offsets": ("ordrs", "--at", "@0"),
    "cat": ("ordrs",),
    "tail": ("ordrs",),
    "get": ("--key", "k", "--topic", "ordrs"),
    "put": ("ordrs",),
    "backfill": ("ordrs", "--day", "2026-01-31", "--to", "lake"),
    "reset-offset": ("etl", "--latest", "--topic", "ordrs"),
}


def line(verb: str, store: Path, *more: object) -> list[object]:
    """A command line that is right but for what is added."""
    words = {"retention": ["plan"], "archive": ["push"]}.get(verb, [])
    return [verb, *words, store, *REQUIRED.get(verb, ()), *more]


def refused(words: list[object]) -> dict[str, Any]:
    """The error of a command line, which is the same as text and as JSON."""
    as_text, as_json = run_command(*words, stdin=b"x\n"), run_command(*words, "--json", stdin=b"x\n")
    assert (as_text.code, as_text.out, as_json.code, as_json.out) == (2, b"", 2, b"")
    error: dict[str, Any] = json.loads(as_json.err.splitlines()[-1])["error"]
    assert sorted(error) == ["asked", "code", "found", "remedy", "where"]
    assert f"error[{error['code']}]: " in as_text.err
    assert "Traceback" not in as_text.err
    assert error["code"] not in {"SEGMENTLOG_INTERNAL", "SEGMENTLOG_ERROR"}
    return error


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS if verb.name not in {"demo", "completion"}])
def test_an_unknown_flag(verb: str, store: Path) -> None:
    error = refused([*line(verb, store), "--jsno"])
    assert error["found"] == "there is no flag `--jsno`"
    assert error["remedy"].startswith("Did you mean `--json`?")


@pytest.mark.parametrize("verb", WITH_STORE)
def test_a_path_that_does_not_exist(verb: str, tmp_path: Path) -> None:
    error = refused(line(verb, tmp_path / "no"))
    assert error["code"] == "SEGMENTLOG_NOT_A_STORE"
    assert error["where"]["path"] == str(tmp_path / "no")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", WITH_STORE)
def test_a_directory_without_a_store_is_refused_and_unchanged(verb: str, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    assert refused(line(verb, tmp_path))["code"] == "SEGMENTLOG_NOT_A_STORE"
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("verb", WITH_ROWS)
def test_an_unknown_format(verb: str, store: Path) -> None:
    ran = run_command(*line(verb, store), "-o", "jsnol", stdin=b"x\n")
    assert (ran.code, ran.out) == (2, b"")
    assert "`jsnol` is unknown" in ran.err
    assert "Did you mean `jsonl`?" in ran.err


@pytest.mark.parametrize("verb", WITH_TOPIC)
def test_an_unknown_topic(verb: str, store: Path) -> None:
    error = refused([verb, store, *WITH_TOPIC[verb]])
    assert "ordrs" in error["found"]
    assert error["code"] == "SEGMENTLOG_UNKNOWN_TOPIC"


@pytest.mark.parametrize("verb", ["groups", "lag", "reset-offset"])
def test_an_unknown_group(verb: str, store: Path) -> None:
    more = ["--latest"] if verb == "reset-offset" else []
    assert "Did you mean `etl`?" in refused([verb, store, "elt", *more])["remedy"]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arguments(words: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.command.sessions.session", None)  # they are refused before Spark starts
    paths = {"STORE": store, "NEW": tmp_path / "new"}
    ran = run_command(*(paths.get(word, word) for word in words.split()), stdin=b"x\n")
    assert (ran.code, ran.out) == (2, b"")
    assert WRONG[words] in ran.err
    assert "secret" not in ran.err.partition("asked:")[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", WITH_STORE)
def test_a_missing_store(verb: str) -> None:
    ran = run_command(verb)
    assert (ran.code, ran.out) == (2, b"")
    assert "required" in ran.err
