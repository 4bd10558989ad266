"""Jobs in the benchmark: each case does what its name says, on small stores."""

import pytest


@pytest.fixture
def bench(load, tmp_path):
    sizes = {"rows": 1, "body_bytes": 1, "queues": 1, "rounds": 1, "scale": 0.001}
    return load("bench").Bench(
        tmp_path, **sizes, full=False, peers=[], rocketmq=[], fills_memory=False, tell=lambda text: None
    )


@pytest.mark.slow
def test_stores_are_verified_rebuilt_and_compared(load, bench, monkeypatch):
    monkeypatch.setattr(load("harness"), "SHORT_TIMINGS", 1)
    found = {each.name: each.rows for each in load("sections.jobs").maintenance(bench).results}
    assert set(found) == {
        "segmentlog: verify, one process",
        "segmentlog: verify, two processes",
        "segmentlog: verify, one process, __CRC32#",
        "limit: CRC-32 of the log",
        "segmentlog: rebuild, 1024 B",
        "segmentlog: rebuild, 100 B",
        "segmentlog: diff of equal stores, one process",
        "limit: comparison of the logs",
    }
    assert found["segmentlog: rebuild, 1024 B"] == 8192
    assert found["segmentlog: verify, one process"] == found["limit: CRC-32 of the log"] > 8192 * 1024
    assert not list(bench.folder.iterdir())


def test_nothing_is_sent_without_the_peer(load, bench):
    assert load("sections.jobs").resends(bench).results == []


def test_the_sections_run_with_their_groups(load):
    catalogue = load("catalogue")
    assert {"store-jobs", "store-resend"} < set(catalogue.STORE)
    assert "replay" in catalogue.SPARK
