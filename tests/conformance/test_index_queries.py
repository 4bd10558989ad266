"""Queries of an index by `support.broker_index`, which other tests take for RocketMQ, beside RocketMQ's own answers."""

from pathlib import Path
from typing import Any

import pytest

from segmentlog.store.format.index_file import Geometry
from support import fixtures
from support.broker_index import BATCH_MAX, Index

CHANGED = ("crash-", "cq-deleted-", "dledger-crash", "dledger-uncommitted")
"""Fixtures whose index RocketMQ changes when it opens them, before it answers."""


def configured(name: str) -> Geometry:
    config = fixtures.config(name)
    default = Geometry()
    return Geometry(config.get("maxHashSlotNum", default.slots), config.get("maxIndexNum", default.entries))


def ask(index: Index, question: dict[str, Any]) -> list[int]:
    asked = (question["topic"], question["key"], min(question["maxNum"], BATCH_MAX), question["begin"], question["end"])
    return index.query(*asked)


@pytest.mark.conformance
@pytest.mark.parametrize("name", [name for name in fixtures.names() if not name.startswith(CHANGED)])
def test_keys_are_answered_as_rocketmq_answers(name: str, tmp_path: Path) -> None:
    index = Index.open(fixtures.unpack(name, tmp_path) / "index", configured(name))
    headers = [index.header(path) for path in index.files()]
    for question in fixtures.queries(name, "messageByKey"):
        ours = ask(index, question)
        assert ours == question["answer"]["phyOffsets"], question
        if ours:
            assert headers[-1].end_timestamp == question["answer"]["indexLastUpdateTimestamp"]
            assert headers[-1].end_physical_offset == question["answer"]["indexLastUpdatePhyOffset"]


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "loses"), [("crash-clean-5.3.3", False), ("crash-clean-5.5.0", True)])
def test_a_release_that_recovers_ten_segments_loses_keys_of_older_records(
    name: str, loses: bool, tmp_path: Path
) -> None:
    index = Index.open(fixtures.unpack(name, tmp_path) / "index", configured(name))
    lost = set[int]()
    for question in fixtures.queries(name, "messageByKey"):
        ours, theirs = set(ask(index, question)), set(question["answer"]["phyOffsets"])
        assert theirs <= ours
        lost |= ours - theirs
    assert bool(lost) == loses
    assert max(lost, default=-1) < fixtures.expected(name).segments[-10]["phyOffset"]  # commitLogRecoverMaxNum
