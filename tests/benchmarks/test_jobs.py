"""Jobs in the benchmark: each case does what its name says, on small stores."""

import pytest


@pytest.mark.slow
@pytest.mark.scaled(quick=0)
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
