"""Kinds of queues in the benchmark: the stores hold the same messages, each read as its name says."""

import pytest

from segmentlog.store import StoreReader
from segmentlog.store.dispatch.kept_queues import LogQueues
from segmentlog.store.read import database_queues, snapshot


def test_each_kind_of_queues_is_read(load, bench, monkeypatch):
    pytest.importorskip("rocksdict")
    monkeypatch.setattr(snapshot, "WORTH_BYTES", 1)
    monkeypatch.setattr(database_queues, "_WORTH_ENTRIES", 1)
    kinds, taken, take = load("sections.queue_kinds"), [], StoreReader.plan

    def noted(reader, *arguments, **named):
        taken.append((reader.path.rpartition("/")[2], type(reader._view.snapshot.derived)))
        return take(reader, *arguments, **named)

    monkeypatch.setattr(StoreReader, "plan", noted)
    found = kinds.plans_and_scans(bench)
    assert {each.name.rpartition(" by ")[2] for each in found.results} == {
        "files",
        "RocksDB",
        "RocksDB, kept",
        "the log alone",
        "the log alone, kept",
    }
    database = database_queues.DatabaseQueues
    assert set(taken) == {
        ("files", type(None)),
        ("RocksDB", database),
        ("RocksDB", LogQueues),
        ("the-log-alone", LogQueues),
    }
