"""Wrong input to every verb: exit code 2, an error of one shape, nothing on stdout, and nothing changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from segmentlog.command.catalogue import VERBS
from support.commands import run_command

REQUIRED: dict[str, tuple[str, ...]] = {
    "lag": ("etl",),
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


@pytest.mark.parametrize("verb", [*WITH_STORE, "completion", "replicate"])
def test_a_missing_argument(verb: str) -> None:
    ran = run_command(verb)
    assert (ran.code, ran.out) == (2, b"")
    assert "required" in ran.err


@pytest.mark.parametrize("verb", WITH_ROWS)
def test_an_unknown_format(verb: str, store: Path) -> None:
    ran = run_command(*line(verb, store), "-o", "jsnol", stdin=b"x\n")
    assert (ran.code, ran.out) == (2, b"")
    assert "`jsnol` is unknown" in ran.err
    assert "Did you mean `jsonl`?" in ran.err


@pytest.mark.parametrize("verb", WITH_ROWS)
def test_formats_that_a_terminal_cannot_show(verb: str, store: Path) -> None:
    flags = ("--dry-run",) if verb in {"put", "reset-offset"} else ()
    ran = run_command(*line(verb, store), *flags, "-o", "parquet", stdin=b"x\n", terminal=True)
    assert (ran.code, ran.out) == (2, b"")
    assert "-o parquet: stdout is a terminal" in ran.err


@pytest.mark.parametrize("verb", WITH_TOPIC)
def test_an_unknown_topic(verb: str, store: Path) -> None:
    error = refused([verb, store, *WITH_TOPIC[verb]])
    assert "ordrs" in error["found"]
    assert error["code"] == "SEGMENTLOG_UNKNOWN_TOPIC"


@pytest.mark.parametrize("verb", ["groups", "lag", "reset-offset"])
def test_an_unknown_group(verb: str, store: Path) -> None:
    more = ["--latest"] if verb == "reset-offset" else []
    assert refused([verb, store, "elt", *more])["remedy"].startswith("Did you mean `etl`?")
