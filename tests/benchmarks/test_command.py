"""The benchmark of the command: what is timed does what it says, and the targets read the right results."""

import json
import subprocess

import pytest


@pytest.fixture
def store(load, tmp_path):
    load("sections.command").written(tmp_path / "store", 1, tmp_path / "lines")
    return tmp_path / "store"


@pytest.mark.slow
def test_the_command_and_the_lines_for_kcat_have_the_same_messages(load, store, tmp_path):
    command = load("sections.command")
    command.run("cat", store, command.TOPIC, "-o", "jsonl", "--columns", command.FIELDS, output=tmp_path / "jsonl")
    rows = [json.loads(line) for line in (tmp_path / "jsonl").read_bytes().splitlines()]
    assert len(rows) == command.BATCH_ROWS == command.scanned(store, command.FIELDS)
    asked = sorted(f"{row['keys']}\t{row['body']}" for row in rows)
    assert asked == sorted((tmp_path / "lines").read_text().splitlines())


@pytest.mark.slow
def test_printed_messages_are_put_again(load, store, tmp_path):
    command = load("sections.command")
    command.run("cat", store, command.TOPIC, "-o", "jsonl", output=tmp_path / "jsonl")
    command.put(tmp_path / "jsonl", tmp_path / "put")
    assert command.scanned(tmp_path / "put", command.FIELDS) == command.BATCH_ROWS


def test_a_failure_of_the_command_is_one_of_the_benchmark(load, store):
    with pytest.raises(subprocess.CalledProcessError):
        load("sections.command").run("get", store, "--key", "none")


def test_kcat_is_left_out_where_it_is_missing(load, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KCAT", raising=False)
    kcat = load("peers.kcat")
    with (
        pytest.raises(load("harness").UnavailableError, match="there is no kcat"),
        kcat.Kcat.running(tmp_path / "broker", tmp_path / "lines"),
    ):
        pass


@pytest.mark.parametrize(("ms", "expected"), [(49, ("49 ms", True)), (51, ("51 ms", False))])
def test_a_line_is_shown_in_time(load, result, judge, ms, expected):
    waits = result("segmentlog: from append to tail -f", rows=1, seconds=(*[0.001] * 50, *[ms / 1000] * 50))
    assert judge(load("targets").shown, waits) == expected


@pytest.mark.parametrize(("ms", "expected"), [(4.9, ("4.9 ms", True)), (5.1, ("5.1 ms", False))])
def test_a_follower_has_a_message_in_time(load, result, judge, ms, expected):
    waits = result("segmentlog: latency of follow, without Spark", rows=1, seconds=(*[0.001] * 50, *[ms / 1000] * 50))
    assert judge(load("targets").followed, waits) == expected


def test_the_section_runs_with_the_broker_sections(load):
    assert "command" in load("catalogue").SPARK
