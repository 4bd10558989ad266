from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store.format.index_file import Geometry
from support import fixtures, releases
from support.broker_index import BATCH_MAX, Index

# RocketMQ changes the index when it opens these stores, before it answers; the number of answers that change.
#
# crash-*: the abort file is there, so the index file, which was not full, is deleted and built again from the segment
#   at which recovery begins: keys of records before it are lost. In crash-clean-* that is the first, nothing is lost,
#   but in 5.5.0 it is the tenth from the end at the earliest.
#   In crash-middle-* the log is cut at the damage, and with it the index.
#   In crash-cq-deleted-* the last record was not yet in the index when the store was halted; RocketMQ puts it there.
# cq-deleted-*: ConsumeQueues are built again from the CommitLog, and the very last record is indexed a second time.
CHANGED = {
    "cq-deleted-4.9.1": 2,
    "cq-deleted-5.3.3": 2,
    "cq-deleted-5.5.0": 2,
    "cq-deleted-recheck-5.1.0": 2,
    "crash-clean-5.5.0": 10,
    "crash-cq-deleted-4.9.1": 13,
    "crash-cq-deleted-5.3.3": 13,
    "crash-garbage-4.9.1": 10,
    "crash-garbage-5.3.3": 10,
    "crash-middle-4.9.1": 13,
    "crash-middle-5.3.3": 13,
    "crash-properties-4.9.1": 10,
    "crash-zeros-4.9.1": 10,
    "crash-zeros-5.3.3": 10,
    "crash-zeros-5.5.0": 10,
}


LOST = [name for name in fixtures.dledger() if "crash" in name or "uncommitted" in name]
"""Fixtures whose newest index file RocketMQ deletes before it answers; with DLedger it does not make it again."""


def configured(name: str) -> Geometry:
    config = fixtures.config(name)
    default = Geometry()
    return Geometry(config.get("maxHashSlotNum", default.slots), config.get("maxIndexNum", default.entries))


def ask(index: Index, question: dict[str, Any]) -> list[int]:
    asked = (question["topic"], question["key"], min(question["maxNum"], BATCH_MAX), question["begin"], question["end"])
    return index.query(*asked)


def as_rocketmq_changes_it(name: str) -> Callable[[dict[str, Any], list[int]], list[int]]:
    """Return an answer as it is after RocketMQ has opened the store, from its dump of the store."""
    expected = fixtures.expected(name)
    whole = sorted(
        (m for m in (*expected.messages, *expected.records) if "storeTimestamp" in m), key=lambda m: m["phyOffset"]
    )
    first_of_segment = {m["phyOffset"]: m["storeTimestamp"] for m in whole}
    until = expected.checkpoint["minTimestamp"]
    starts = [s["phyOffset"] for s in expected.segments if first_of_segment.get(s["phyOffset"], until + 1) <= until]
    if releases.RECOVERY_LIMIT.holds(fixtures.about(name)["rocketmq"]):
        starts.append(expected.segments[-releases.RECOVERED_SEGMENTS :][0]["phyOffset"])
    start, stop, last = max(starts, default=0), expected.store["maxPhyOffset"], whole[-1]
    indexed = (
        m["storeTimestamp"] for m in whole if m["phyOffset"] >= start and {"KEYS", "UNIQ_KEY"} & set(m["properties"])
    )
    begin = next(indexed)
    seen = begin + (last["storeTimestamp"] - begin) // 1000 * 1000  # an index counts in whole seconds

    def change(question: dict[str, Any], ours: list[int]) -> list[int]:
        if name.startswith("cq-deleted"):
            twice = sorted(ours + [offset for offset in ours if offset == last["phyOffset"]])
            return twice[-question["maxNum"] :]
        ours = [offset for offset in ours if start <= offset < stop]
        is_last = (question["topic"], question["key"]) == (last["topic"], last["keys"])
        is_in_time = question["begin"] <= seen <= question["end"]
        return [*ours, last["phyOffset"]] if name.startswith("crash-cq") and is_last and is_in_time else ours

    return change


@pytest.mark.conformance
@pytest.mark.parametrize("name", [name for name in fixtures.names() if name not in LOST])
def test_keys_are_answered_as_rocketmq_answers(name: str, tmp_path: Path) -> None:
    index = Index.open(fixtures.unpack(name, tmp_path) / "index", configured(name))
    headers = [index.header(path) for path in index.files()]
    changed = 0
    change = as_rocketmq_changes_it(name) if name in CHANGED else None
    for question in fixtures.queries(name, "messageByKey"):
        ours, theirs = ask(index, question), question["answer"]["phyOffsets"]
        if change is not None:
            changed += ours != theirs
            assert change(question, ours) == theirs, question
            continue
        assert ours == theirs, question
        if ours and not name.startswith("crash-"):  # the end of a rebuilt index file may differ
            assert headers[-1].end_timestamp == question["answer"]["indexLastUpdateTimestamp"]
            assert headers[-1].end_physical_offset == question["answer"]["indexLastUpdatePhyOffset"]
    assert changed == CHANGED.get(name, 0)
