import logging

import pytest

from segmentlog.store import DamagedLogError, OnDamage
from segmentlog.store.format.durable_point import DurablePoint
from segmentlog.store.log.log_end import LogState
from segmentlog.store.recovery.decide import Recovery, decide

PATH = "/store/commitlog"


def state(end: int, beyond: int = 0, problem: str = "") -> LogState:
    return LogState(start=0, end=end, problem=problem, beyond=beyond, newest=1, last=end)


def durable(log: int) -> DurablePoint:
    return DurablePoint(log=log, queues=min(log, 100))


@pytest.mark.parametrize("on_damage", OnDamage)
@pytest.mark.parametrize("beyond", [0, 3])
@pytest.mark.parametrize("end", [500, 501, 9_000])
def test_from_the_durable_point_on_a_log_may_be_torn_anywhere(end: int, beyond: int, on_damage: OnDamage) -> None:
    assert decide(state(end, beyond, "a CRC is wrong"), durable(500), on_damage, PATH) == end


@pytest.mark.parametrize("end", [0, 1, 499])
def test_before_the_durable_point_nothing_can_be_torn(end: int) -> None:
    with pytest.raises(DamagedLogError, match=f"{500 - end} bytes that were on the device") as raised:
        decide(state(end, 2, "a CRC is wrong"), durable(500), OnDamage.REFUSE, PATH)
    assert (raised.value.path, raised.value.offset) == (PATH, end)
    assert "a CRC is wrong" in str(raised.value)
    assert "2 whole records in all" in str(raised.value)
    assert raised.value.fix


def test_damage_is_cut_if_that_is_asked_for() -> None:
    assert decide(state(20, 2), durable(500), OnDamage.CUT, PATH) == 20
    assert decide(state(20, 2), None, OnDamage.CUT, PATH) == 20


def test_without_a_durable_point_whole_records_decide() -> None:
    assert decide(state(20, 0, "a CRC is wrong"), None, OnDamage.REFUSE, PATH) == 20
    with pytest.raises(DamagedLogError, match="1 whole records in all"):
        decide(state(20, 1), None, OnDamage.REFUSE, PATH)


@pytest.mark.parametrize(("end", "undone_from", "expected"), [(800, 300, 300), (300, 300, 300), (800, 600, 600)])
def test_an_unfinished_batch_is_cut_off(end: int, undone_from: int, expected: int) -> None:
    assert decide(state(end), durable(500), OnDamage.REFUSE, PATH, undone_from) == expected


def test_damage_within_an_unfinished_batch_is_cut_with_it() -> None:
    assert decide(state(350, 4), durable(500), OnDamage.REFUSE, PATH, 300) == 300
    with pytest.raises(DamagedLogError):
        decide(state(299, 4), durable(500), OnDamage.REFUSE, PATH, 300)


def test_a_log_without_a_record_is_empty_wherever_it_was_to_begin() -> None:
    begun = LogState(start=1 << 30, end=1 << 30, problem="", beyond=0, newest=0, last=1 << 30)
    assert decide(begun, durable(0), OnDamage.REFUSE, PATH) == 0
    assert decide(begun, None, OnDamage.REFUSE, PATH) == 0
    assert decide(begun, durable(1 << 30), OnDamage.REFUSE, PATH) == 1 << 30  # its records expired


_CUT = "WARNING /store: the log ends at 4711; 7 bytes after it were cut off, 0 whole records among them"
_DERIVED = "INFO /store: the log ends at 4711; 2 queue entries were missing or wrong, and were derived from it"


@pytest.mark.parametrize(
    ("cut", "corrected", "lines"), [(0, 0, []), (7, 0, [_CUT]), (0, 2, [_DERIVED]), (7, 2, [_CUT, _DERIVED])]
)
def test_only_changes_by_recovery_are_logged(
    cut: int, corrected: int, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    found = Recovery(
        was_clean=False,
        adopted=False,
        log_end=4_711,
        cut_records=0,
        undone_from=None,
        cut_bytes=cut,
        dispatched_from=0,
        corrected=corrected,
    )
    with caplog.at_level(logging.INFO):
        found.log("/store")
    assert [f"{record.levelname} {record.getMessage()}" for record in caplog.records] == lines
