"""Tables of the lake in the hands of others: each message once, or an error that names what cannot be told.

::

    backfills: repeated, overlapping, shifted, killed, two at once      maintenance and other writers
                                   └────────── random histories ──────────┘
"""

import os
from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest
from deltalake import write_deltalake

from segmentlog.query.parts import Window
from support.lake import KINDS
from support.lake_histories import History, HistoryError, files_in, is_torn
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261127"))
HISTORIES = {"iceberg": scale(4, 25, 1_000, check=1), "delta": scale(6, 30, 1_000, check=2)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_message_is_there_once_in_random_histories(kind: str, tmp_path: Path, report: Report) -> None:
    counts: Counter[str] = Counter()
    for number in range(HISTORIES[kind]):
        counts += History(kind, SEED + number, tmp_path / str(number)).play()
    report("histories", dict(counts))
    assert counts["runs"] >= 2 * HISTORIES[kind], "most runs ended in errors"
    if HISTORIES[kind] >= 40:
        assert min(counts[each] for each in ("killed", "TargetUnclearError", "TargetChangedError")) > 0


def test_a_message_that_is_there_twice_is_found(tmp_path: Path) -> None:
    history = History("delta", SEED, tmp_path / "doubled")
    history.play()
    rows = history.load().to_pyarrow_table()
    write_deltalake(history.load(), rows.slice(0, 1), mode="append")
    with pytest.raises(HistoryError, match="1 messages are there twice"):
        history.check()


def test_a_table_that_was_rolled_back_into_a_compaction_is_refused(tmp_path: Path) -> None:
    history = History("iceberg", SEED, tmp_path / "torn")
    history.by, history.is_mixed, history.zone = ("topic",), False, UTC
    history._quiet()
    rows = history.load().scan(row_filter="queueId = 0").to_arrow()
    with history.load().transaction() as transaction:
        transaction.delete("queueId = 0")
        transaction.add_files(files_in(history, history.load(), rows))
    between = history.load().snapshots()[-2].snapshot_id
    history._quiet()
    assert not history.counts["torn"]
    history.load().manage_snapshots().rollback_to_snapshot(between).commit()
    history._quiet()
    assert history.counts["torn"] == history.counts["TargetUnclearError"] == 1


def test_an_error_is_right_only_for_messages_that_no_whole_part_has() -> None:
    window = Window(0, 1)
    error = ValueError(f"whether part 0 of {window} was written cannot be told")

    def of(*spans: tuple[int, int]) -> list[tuple[Window, set[tuple[int, int]]]]:
        return [(window, {(0, each) for each in range(*span)}) for span in spans]

    parts = of((0, 2), (2, 6), (0, 4), (4, 8))
    for end, expected in ((0, False), (1, True), (2, False), (3, True), (4, False), (5, True), (6, False), (8, False)):
        assert is_torn(error, parts, {(0, each) for each in range(end)}) is expected
    assert not is_torn(ValueError(f"part 0 of {Window(1, 2)}"), parts, {(0, 0)})
