import json

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


def test_kcat_is_left_out_where_it_is_missing(load, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KCAT", raising=False)
    kcat = load("peers.kcat")
    with (
        pytest.raises(load("harness").UnavailableError, match="there is no kcat"),
        kcat.Kcat.running(tmp_path / "broker", tmp_path / "lines"),
    ):
        pass
