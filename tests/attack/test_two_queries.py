"""Two queries append to one store, and one query is started twice: each batch is there once, whole, and in its turn.

::

    query a   ── batch 0 ────── batch 1 ── batch 2 ─────────        the lock, for one commit at a time
    query b   ───────── batch 0 ───────────────── batch 1 ──        the ledger, for each query by itself

Row 42 of what kills a sink, below Spark; two streams in one session: ``tests/connector/write/test_stream_sink.py``.
"""

import os
from itertools import groupby
from pathlib import Path

import pytest

from segmentlog.store import Snapshot
from segmentlog.store.sink import last_commit, prepare_store
from support.children import CONFIG, ROWS, commit_together
from support.reading import read
from support.scale import Report, scale

pytestmark = [pytest.mark.scaled(quick=0), pytest.mark.attack, pytest.mark.timeout(scale(600, 1800, 36_000))]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
BATCHES = scale(20, 100, 5_000)


def batches_in_order(path: str) -> list[tuple[str, int]]:
    """Return the batches in the order of the log, each of them whole and contiguous."""
    rows = sorted(
        read(Snapshot.open(path), columns=("tags", "body", "physicalOffset")), key=lambda row: row["physicalOffset"]
    )
    found = []
    for tag, each in groupby(rows, lambda row: row["tags"]):
        bodies = [row["body"] for row in each]
        assert bodies == [b"%d %d" % (task, row) for task in range(2) for row in range(ROWS // 2)], tag
        app, _, version = tag.partition(" ")
        found.append((app, int(version)))
    return found


def test_two_queries_on_one_store_take_turns(tmp_path: Path, report: Report) -> None:
    path = str(tmp_path / "store")
    prepare_store(path, CONFIG)
    repeated = commit_together(path, ["a", "b"], BATCHES, SEED)
    assert not any(map(any, repeated))
    found = batches_in_order(path)
    for app in ("a", "b"):
        assert [version for name, version in found if name == app] == [*range(BATCHES)]
        committed = last_commit(path, app)
        assert committed is not None
        assert (committed.version, committed.rows) == (BATCHES - 1, ROWS)
    turns = sum(1 for _ in groupby(found, lambda each: each[0]))
    report("row 42, two queries", f"{2 * BATCHES} batches, {turns} turns")
    assert turns >= BATCHES // 10


def test_a_query_that_is_started_twice_commits_each_batch_once(tmp_path: Path, report: Report) -> None:
    path = str(tmp_path / "store")
    prepare_store(path, CONFIG)
    batches = BATCHES // 2
    one, other = commit_together(path, ["a", "a"], batches, SEED)
    assert batches_in_order(path) == [("a", version) for version in range(batches)]
    # Only the second process was refused.
    assert [*map(sum, zip(one, other, strict=True))] == [1] * batches
    report("row 42, one query twice", f"{batches} batches, {sum(one)} and {sum(other)} of them were there already")
