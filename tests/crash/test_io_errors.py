"""S6: each call of the disk fails in turn, once or from then on; what was promised is there afterwards all the same."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice, product

import pytest

from segmentlog.store.config import Flush
from segmentlog.store.errors import NoSpaceError
from support.crash.campaign import new_disk
from support.crash.driver import CONFIG, Driver
from support.crash.faulted import check_error, faulted_driver, judge_end, judge_faulted
from support.crash.faults import READ_CALLS, Failure, Fault, Span
from support.crash.promises import BrokenPromiseError
from support.crash.recorder import RecordingFileSystem
from support.crash.states import Breadth
from support.crash.workloads import failing, run
from support.scale import Report, scale

pytestmark = pytest.mark.attack

CONFIGS = {
    "sync": CONFIG,
    "async": replace(CONFIG, flush=Flush.ASYNC, flush_interval_ms=40, flush_least_pages=1),
}
LEAST = scale(10, 110, 6000)
"""Runs with a fault, by configuration."""
STRIDE = scale(131, 6, 1)
"""Step from one call that fails to the next."""
OF_FIVE = scale(2, 1, 5)
"""Of five ways in which a call can fail so many are tried, by turns."""
BREADTH = Breadth(exhaustive_bits=0, random_subsets=scale(0, 0, 12), per_point=scale(0, 0, 20), seed=6)


@dataclass
class Count:
    runs: int = 0
    hit: int = 0
    states: int = 0
    after_promises: int = 0
    kept: int = 0
    lost: int = 0
    errors: Counter[str] = field(default_factory=Counter)


@pytest.mark.scaled
@pytest.mark.parametrize("name", CONFIGS)
def test_each_call_can_fail_and_promises_hold(name: str, report: Report) -> None:
    healthy = faulted_driver(CONFIGS[name])
    run(failing, healthy)
    history = healthy.faulty.history
    count = Count()
    ways = list(product(Failure, Span))
    turns = Counter[str]()
    for at, call in islice(enumerate(history, 1), 0, None, STRIDE):
        turns[call] += 1  # of a kind of call, so that five of a kind fail in all ways
        for number, (failure, span) in enumerate(ways):
            # Calls that only read are many, and their errors alike: each fails in one way.
            if (turns[call] + number) % len(ways) if call in READ_CALLS else (turns[call] + number) % 5 >= OF_FIVE:
                continue
            if call in READ_CALLS and failure in {Failure.ENOSPC, Failure.EDQUOT}:
                continue
            try:
                _run_faulted(name, Fault(error=failure, at=at, span=span), count)
            except Exception as error:
                raise BrokenPromiseError(
                    getattr(error, "promise", "opening failed"),
                    f"{error!r} [{name}, call {at} of {len(history)}: {call}, {failure.name} {span.value}]",
                ) from error
    report(f"S6 {name}", count)
    assert count.runs >= LEAST
    assert count.hit == count.runs
    assert count.after_promises >= count.runs // 2
    assert count.errors
    if STRIDE == 1:  # few of the calls that fail leave it open what was kept
        assert count.kept
        assert count.lost


def _run_faulted(name: str, fault: Fault, count: Count) -> None:
    driver = faulted_driver(CONFIGS[name])

    def note(error: Exception) -> None:
        check_error(error)
        count.errors[type(error).__name__] += 1

    driver.on_error = note
    driver.faulty.fault = fault
    run(failing, driver)
    count.runs += 1
    count.hit += driver.faulty.hits > 0
    ends = judge_end(driver, BREADTH)
    count.states += len(ends)
    count.after_promises += any(promised for _, promised in ends)
    count.kept += any(end > promised for end, promised in ends)
    count.lost += len({end for end, _ in ends}) > 1


@pytest.mark.scaled
def test_a_full_disk_refuses_appends_until_there_is_room(report: Report) -> None:
    refused = went_on = 0
    for pages in range(1, scale(60, 60, 200), scale(8, 1, 1)):
        recorder = RecordingFileSystem(new_disk())
        recorder.disk.capacity = pages * 4096
        driver = Driver(recorder, recorder, seed=pages)
        errors: list[Exception] = []
        driver.on_error = errors.append
        driver.open()
        for _ in range(30):
            driver.put(driver.message(900))
        driver.tick(500)
        assert all(isinstance(error, NoSpaceError) for error in errors), (pages, errors)
        refused += bool(errors)
        recorder.disk.capacity = None
        errors.clear()
        driver.open()
        for _ in range(3):
            driver.put(driver.message(900))
        driver.tick(500)
        driver.put_batch([driver.message(900) for _ in range(20)])
        assert not errors, (pages, errors)
        went_on += 1
        driver.close()
        judge_faulted(recorder.disk, driver, max(end for _, end in recorder.recording.marks))
        assert sum(each.physical_offset is not None for each in driver.issued) >= 23
    report("S7 in memory", f"{refused} disks too small, {went_on} went on")
    assert refused >= scale(1, 12, 12)
