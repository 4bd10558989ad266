"""Tables of the lake in the hands of others: each message once, or an error that names what cannot be told.

::

    backfills: repeated, overlapping, shifted, killed, two at once      maintenance and other writers
                                   └────────── random histories ──────────┘
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from deltalake import write_deltalake

from support.lake import KINDS
from support.lake_histories import History, HistoryError
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261127"))
HISTORIES = {"iceberg": scale(6, 25, 1_000, check=1), "delta": scale(12, 30, 1_000, check=2)}


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
