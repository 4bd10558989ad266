import errno
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from segmentlog.store.archive import turns as service
from segmentlog.store.archive.push import PushReport
from segmentlog.store.archive.turns import PushTurns
from segmentlog.store.errors import (
    ConfigError,
    CorruptError,
    MissingFileError,
    NotAStoreError,
    SegmentLogError,
    StoreIOError,
    UnreadableError,
    UnsupportedStoreError,
)
from support.delegating import patch_import

REPORT = PushReport(
    manifest=1,
    start=0,
    stop=10,
    pieces=1,
    records=3,
    sent_bytes=100,
    reused=0,
    removed=0,
    gaps=(),
    damage=(),
    replaced=None,
    warnings=(),
)


class Clock:
    """A clock that sleeps at once; the n-th sleep is interrupted, as by a signal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sleeps: int = 3) -> None:
        self.now, self.woken, self.sleeps = 1000.25, [], sleeps
        patch_import(monkeypatch, service, "time", monotonic=lambda: self.now, sleep=self.sleep)

    woken: list[float]

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if len(self.woken) == self.sleeps:
            raise KeyboardInterrupt
        self.woken.append(self.now)


def turns(push: Callable[[], PushReport], failed: list[tuple[Exception, float]]) -> PushTurns:
    return PushTurns(push, 10, lambda *_: None, lambda error, wait: failed.append((error, wait)))


def test_turns_are_multiples_of_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, took = Clock(monkeypatch), iter([0.5, 3, 25, 10])

    def push() -> PushReport:
        clock.now += next(took)
        return REPORT

    made = turns(push, [])
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert clock.woken == [1010.25, 1020.25, 1050.25], "the turns within a push of 25 s are left out"
    assert (made.pushes, made.failures, made.sent_bytes, made.records) == (4, 0, 400, 12)
    assert not made.is_pushing
    assert made.age_s == 10


@pytest.mark.parametrize(
    "error",
    [
        StoreIOError("the network", errno=errno.EIO),
        MissingFileError("retention was first", errno=errno.ENOENT),
        CorruptError("damage"),
        OSError(errno.ENOSPC, "full"),
    ],
)
def test_an_error_that_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch, error: SegmentLogError) -> None:
    Clock(monkeypatch)
    failed = list[tuple[Exception, float]]()
    made = turns(Mock(side_effect=[error, REPORT, error, REPORT]), failed)
    assert made.age_s is None
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert (made.pushes, made.failures) == (2, 2)
    assert failed == [(error, 10), (error, 10)]


@pytest.mark.parametrize(
    ("error", "ends_later"),
    [
        (ConfigError("another store"), True),
        (UnsupportedStoreError("no conditional writes"), True),
        (NotAStoreError("no such directory"), False),
        (UnreadableError("403 AccessDenied"), False),
        (StoreIOError("404 NoSuchBucket", errno=errno.ENOENT), False),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_wrong_argument_ends_the_turns(
    monkeypatch: pytest.MonkeyPatch, error: Exception, ends_later: bool, is_first: bool
) -> None:
    Clock(monkeypatch)
    made = turns(Mock(side_effect=[error] if is_first else [REPORT, error, REPORT, REPORT]), [])
    with pytest.raises(type(error) if is_first or ends_later else KeyboardInterrupt):
        made.run()
    assert made.failures == 1


def test_a_stop_ends_the_turns_after_the_push(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def push() -> PushReport:
        assert made.is_pushing
        made.stop()
        return REPORT

    made = turns(push, [])
    made.run()
    assert (made.pushes, clock.woken) == (1, [])


def test_an_error_of_the_program_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    made = turns(lambda: 1 // 0, [])  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        made.run()
