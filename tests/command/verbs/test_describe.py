import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from segmentlog.command.verbs import describe
from segmentlog.query import metadata
from segmentlog.query.metadata import METRICS
from support.commands import run_command
from support.delegating import patch_import
from support.small_store import ROWS, write_small_store


def test_topics_are_listed_without_system_topics_of_rocketmq(store: Path) -> None:
    rows = run_command("topics", store, "--json").rows
    assert [(row["topic"], row["queues"], row["messages"]) for row in rows] == [
        ("orders", 4, 400),
        ("payments", 4, 400),
    ]
    assert rows[0]["firstStoreTimestamp"] == "2026-01-31T00:00:00.000Z"
    assert rows[0]["brokerName"] == store.name


def test_topics_as_a_table(store: Path) -> None:
    lines = run_command("topicList", store).text.splitlines()
    assert lines[0].split()[:3] == ["brokerName", "topic", "isSystem"]
    assert lines[2].split()[:5] == [store.name, "orders", "no", "4", "400"]


def test_rates_end_at_a_time(store: Path) -> None:
    rows = run_command("stats", store, "orders", "--at", "2026-01-31T00:05:00Z", "--json").rows
    assert rows == [
        {
            "at": "2026-01-31T00:05:00.000Z",
            "brokerName": store.name,
            "topic": "orders",
            "queues": 4,
            "messages": 400,
            "bytes": rows[0]["bytes"],
            "messagesPerSecond": 1,
            "messages24h": 301,
            "lastStoreTimestamp": "2026-01-31T00:06:39.000Z",
        }
    ]
    queues = run_command("queues", store, "orders", "--json").rows
    assert rows[0]["bytes"] == sum(row["bytes"] for row in queues)


def test_all_topics_now(store: Path) -> None:
    rows = run_command("statsAll", store, "--json").rows
    assert [row["topic"] for row in rows] == ["%RETRY%etl", "orders", "payments"]
    assert {row["messagesPerSecond"] for row in rows} == {0}
    assert run_command("stats", store, "ordrs").code == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_watching_continues_until_an_interrupt(store: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    patch_import(monkeypatch, describe, "time", sleep=pause)
    ran = run_command("stats", store, "orders", "--watch", "2", terminal=terminal)
    assert (ran.code, ran.err) == (130, "")
    assert pauses == [2, 2, 2]
    assert ran.text.count("\x1b[H") == (3 if terminal else 0)
    assert ran.text.count("orders") == 3


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--at", "2026-01-31T00:00:04Z"], [1, 1, 1, 1]),
        (["--at", "2026-01-31T00:00:05Z"], [2, 1, 1, 1]),
        (["--at", "2026-01-31T00:00:04Z", "--boundary", "upper"], [1, 0, 0, 0]),
        (["--at", "@0"], [0, 0, 0, 0]),
        (["--at", "2030-01-01T00:00:00Z"], [100, 100, 100, 100]),
    ],
)
def test_offsets_of_a_time(store: Path, flags: list[str], expected: list[int]) -> None:
    rows = run_command("offsets", store, "orders", *flags, "--json").rows
    assert [row["offset"] for row in rows] == expected


def test_the_message_there(store: Path) -> None:
    rows = run_command("offsets", store, "--at", "2026-01-31T00:00:06Z", "--json").rows
    assert [row["topic"] for row in rows] == ["%RETRY%etl", *["orders"] * 4, *["payments"] * 4]
    assert rows[3] == {
        "topic": "orders",
        "queueId": 2,
        "offset": 1,
        "minOffset": 0,
        "maxOffset": 100,
        "storeTimestamp": "2026-01-31T00:00:06.000Z",
    }
    end = run_command("offsets", store, "orders", "--at", "2030-01-01T00:00:00Z", "--json").rows
    assert {row["storeTimestamp"] for row in end} == {None}


def test_a_replica_is_suggested_for_a_backlog_that_does_not_fit_into_memory(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = sum(row["bytes"] for row in run_command("lag", store, "etl", "--json").rows)
    monkeypatch.setattr(metadata, "memory_bytes", lambda: waiting * 10 // 4 + 1)
    assert [row["suggestReplica"] for row in run_command("lag", store, "etl", "--json").rows] == [False] * 4
    monkeypatch.setattr(metadata, "memory_bytes", lambda: (waiting - 1) * 10 // 4)
    ran = run_command("lag", store, "etl", "--json")
    assert ran.code == 0
    assert ran.out.count(b'"suggestReplica":true') == 4
    assert f"hint: {waiting} bytes wait for etl, more than 40% of the" in ran.err
    assert "segmentlog replicate" in ran.err


def test_a_report_of_all_and_of_some_topics_and_a_page_in_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, page = write_small_store(tmp_path / "store"), tmp_path / "page.html"
    ran = run_command("profile", store, "--processes", 1, "--html", page)
    assert (ran.code, "orders" in ran.text, page.read_text()[:15]) == (0, True, "<!doctype html>")
    with monkeypatch.context() as patch:
        patch.setattr("segmentlog.jobs.statistics.run", None)  # it reads all messages
        for taken in (page, tmp_path / "nowhere" / "page.html"):
            refused = run_command("profile", store, "--processes", 1, "--html", taken)
            assert (refused.code, "--html" in refused.err) == (2, True)
    assert [each.name for each in tmp_path.glob("page*")] == ["page.html"]
    found = json.loads(run_command("profile", store, "orders", "--processes", 1, "--json").out)
    assert found["messages"] == ROWS * 2 // 3
    assert {"rows", "queues", "tags", "hosts", "minutes", "sizes", "lateness", "retention"} <= set(found)
    assert run_command("profile", store, "ordres").code == 2


def test_a_scrape_has_the_same_numbers(store: Path) -> None:
    rows = run_command("metrics", store, "--json").rows
    command = [sys.executable, "-m", "segmentlog.command", "metrics", str(store), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        url = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        scrapes = [urllib.request.urlopen(url, timeout=60).read().decode() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    for text in scrapes:
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert families.keys() <= {f"segmentlog_{name}" for name in METRICS}
        for row in rows:
            if "age" in row["metric"] or "disk" in row["metric"] or "head_room" in row["metric"]:
                continue  # they change by themselves
            labels = {"broker": row["brokerName"]}
            labels |= {name: row[name] for name in ("topic", "group") if row[name] is not None}
            samples = families[f"segmentlog_{row['metric']}"].samples
            assert [sample.value for sample in samples if sample.labels == labels] == [row["value"]]


def test_the_missing_package_is_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    ran = run_command("metrics", store, "--listen", "127.0.0.1:0")
    assert ran.code == 2
    assert "segmentlog[metrics]" in ran.err
