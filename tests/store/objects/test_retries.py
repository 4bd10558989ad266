from collections.abc import Iterator

import pytest

from segmentlog.store.errors import StoreIOError, UnreadableError
from segmentlog.store.objects import retries
from segmentlog.store.objects.retries import Failure, FailureKind, Request, Retries, attempted
from support.delegating import patch_import

REQUEST = Request("reading [0, 5)", "s3://bucket/a", 0)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    patch_import(monkeypatch, retries, "time", sleep=found.append)
    return found


def _failing(kind: FailureKind, times: int) -> Iterator[Failure | None]:
    yield from [Failure(kind, "found")] * times
    yield None


def _run(kind: FailureKind, times: int, limit: Retries | None = None) -> list[str]:
    renewed: list[str] = []
    failures = _failing(kind, times)

    def call() -> None:
        if (failure := next(failures)) is not None:
            raise failure

    attempted(REQUEST, call, limit or Retries(), lambda: renewed.append("renewed"))
    return renewed


@pytest.mark.parametrize(
    "kind", [FailureKind.THROTTLED, FailureKind.BUSY, FailureKind.BROKEN, FailureKind.SLOW, FailureKind.SHORT]
)
def test_failures_that_may_pass_are_repeated_with_growing_waits(kind: FailureKind, waits: list[float]) -> None:
    assert _run(kind, 9) == []
    assert len(waits) == 9
    assert all(0 <= wait <= min(15, 0.1 * 2 ** (number + 1)) for number, wait in enumerate(waits))
    with pytest.raises(StoreIOError, match="after 11 attempts"):
        _run(kind, 11)
    with pytest.raises(StoreIOError, match="after 3 attempts"):
        _run(kind, 11, Retries(2))


def test_credentials_that_were_not_found_are_looked_for_three_times_more(waits: list[float]) -> None:
    assert _run(FailureKind.UNKNOWN, 3) == []
    with pytest.raises(UnreadableError, match="Set credentials"):
        _run(FailureKind.UNKNOWN, 4)
    assert len(waits) == 6


def test_no_attempt_begins_after_the_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    patch_import(monkeypatch, retries, "time", monotonic=lambda: float(next(clock)))
    with pytest.raises(StoreIOError, match=r"after 3 attempts in 30.0 s"):
        _run(FailureKind.BUSY, 100, Retries(100, 30.0))
