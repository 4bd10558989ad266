import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from segmentlog.query.metrics import METRICS
from support.commands import run_command


def test_the_table_has_the_numbers_of_topics_and_groups(store: Path) -> None:
    rows = run_command("metrics", store, "--json").rows
    found = {(row["metric"], row["topic"], row["group"]): row["value"] for row in rows}
    (orders,) = (row for row in run_command("topics", store, "--json").rows if row["topic"] == "orders")
    assert found["topic_messages", "orders", None] == orders["messages"]
    assert found["topic_bytes", "orders", None] == orders["bytes"]
    lag = run_command("lag", store, "etl", "--json").rows
    assert found["group_lag_messages", "orders", "etl"] == sum(row["messages"] for row in lag)


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
