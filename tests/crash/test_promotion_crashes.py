"""S2: the power is cut within a promotion or a demotion; the store is before it or after it, and nothing is lost."""

from random import Random

import pytest

from segmentlog.store import BatchId, MessageStore
from segmentlog.store.format.batch_history import BatchHistory, encode_lines
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.format.ledger import LOST, Batch
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.ha import Address, demote, promote, promotion
from segmentlog.store.ha.protocol import Greeting
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.log.epochs import find_epochs, greatest_epoch, supersede
from segmentlog.store.sink import Staging
from support.batches import batch_of
from support.crash.campaign import new_disk, reopen
from support.crash.driver import CONFIG, ROOT, TIME, Clock, make_message
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import RecordingFileSystem
from support.crash.states import CUTS, Breadth, States
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

BREADTH = Breadth(
    exhaustive_bits=scale(1, 2, 8),
    random_subsets=scale(1, 2, 32),
    torn=scale(1, 2, CUTS + 3),
    per_point=scale(1, 2, 100),
    seed=49,
)
STRIDE = scale(7, 1, 1)
"""Step from one call at which the power is cut to the next."""


def written() -> tuple[MemoryFileSystem, list[int], int]:
    """Return a closed store with messages and two batches, the offsets of its messages, and the start of the last."""
    disk, draw = new_disk(), Random(49)
    clock = TIME.clock = Clock()
    with MessageStore.open(ROOT, CONFIG, fs=disk, clock=clock) as store:
        offsets = [store.append(make_message(draw, 500)).physical_offset for _ in range(60)]
        for version in range(2):
            with Staging.open(ROOT, "job", version, "a", CONFIG, fs=disk) as staging:
                staging.add(batch_of([make_message(draw, 300) for _ in range(8)]))
                staged = [staging.finish()]
            last = store.commit_batch(BatchId("q", version), staged).start
    return disk, offsets, last


def image(disk: MemoryFileSystem, path: str, start: int, stop: int) -> bytes:
    log = CommitLog(disk, [f"{path}/commitlog"])
    parts = [log.view(each)[max(start - each.base, 0) : stop - each.base].tobytes() for each in log.segments]
    return b"".join(part for part, each in zip(parts, log.segments, strict=True) if each.base < stop)


def test_a_promotion_is_there_or_not(report: Report) -> None:
    disk, _, _ = written()
    end = reopened_end(disk.clone())
    supersede(disk, ROOT, 4)
    whole = image(disk, ROOT, 0, end)
    recorder = RecordingFileSystem(disk.clone())
    promote(ROOT, fs=recorder)
    recorder.mark("promoted")
    found = {4: 0, 5: 0}
    for state in states(recorder):
        crashed = state.disk()
        epoch = greatest_epoch(crashed, ROOT)
        assert epoch == 5 or not state.marks, state
        assert find_epochs(crashed, ROOT).newest in {0, 5}
        found[epoch] += 1
        assert reopened_end(crashed) == end
        assert image(crashed, ROOT, 0, end) == whole
        again = promote(ROOT, fs=crashed)
        assert (again.epoch, again.start) == (epoch + 1, end)
    report("promotion", found)
    assert min(found.values()) >= 1


def test_a_promotion_has_a_batch_as_a_whole_or_keeps_its_first_rows(report: Report) -> None:
    disk, _, last = written()
    end = reopened_end(disk.clone())
    records = BatchRecords(disk, ROOT)
    known = records.ledger().applications["q"]
    torn = known.newest._replace(stop=end + 700)
    after = known.newest._replace(sequence=9, start=end + 700, stop=end + 900)
    theirs = BatchHistory((*(Batch("q", each) for each in known.entries[:-1]), Batch("q", torn), Batch("late", after)))
    disk.unlink(StorePaths(ROOT).ledger)  # a replica has no batches of its own
    records.write_mark(disk, BatchMark())
    records.take_history(disk, encode_lines(theirs))
    records.write_incoming(disk, BatchMark().begun(1, last), is_synced=True)
    whole = image(disk, ROOT, 0, end)
    recorder = RecordingFileSystem(disk.clone())
    copy = promote(ROOT, fs=recorder).copy
    assert copy is not None
    recorder.mark("promoted")
    found = {end: 0, last: 0}
    for state in states(recorder):
        crashed = state.disk()
        is_done = find_epochs(crashed, ROOT).newest > 0
        assert is_done or not state.marks, state
        left = reopened_end(crashed)
        found[left] += 1
        assert image(crashed, ROOT, 0, left) == whole[:left]
        if left < end:
            assert image(crashed, copy, last, end) == whole[last:end], "rows are lost"
        again = promote(ROOT, fs=crashed)
        assert again.start == last
        ledger = BatchRecords(crashed, ROOT).ledger()
        assert ledger.applications["q"].entries == known.entries[:-1]
        assert ledger.applications["late"].newest.rows == LOST
        assert ledger.sequence >= 9
        assert BatchRecords(crashed, ROOT).history().beyond(last) == ()
    report("promotion with a batch in part", found)
    assert min(found.values()) >= 1


def reopened_end(disk: MemoryFileSystem) -> int:
    """Open a store as the next process would, and return where its log ends."""
    with reopen(disk, CONFIG) as store:
        return store.end_offset


def states(recorder: RecordingFileSystem) -> States:
    calls = len(recorder.recording.ops)
    return States(recorder.recording, BREADTH, lambda point: point % STRIDE == 0 or point > calls - 3)


@pytest.mark.parametrize("where", ["within messages", "within a batch"])
def test_a_demotion_loses_nothing_that_is_not_copied(
    where: str, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    disk, offsets, last = written()
    end = reopened_end(disk.clone())
    parting = offsets[33] if where == "within messages" else last + 700
    cut = min(parting, last)
    theirs = Epochs((Epoch(1, parting, 9),))
    monkeypatch.setattr(promotion, "ask_epochs", lambda *_: Greeting(end + 99, theirs))
    whole = image(disk, ROOT, 0, end)
    recorder = RecordingFileSystem(disk.clone())
    copy = demote(ROOT, Address("master", 1), fs=recorder).copy
    assert copy is not None
    recorder.mark("demoted")
    found = {end: 0, cut: 0}
    for state in states(recorder):
        crashed = state.disk()
        is_done = find_epochs(crashed, ROOT) == theirs
        assert is_done or not state.marks, state
        before = reopened_end(crashed)
        found[before] += 1
        assert before == cut or not is_done, state
        assert image(crashed, ROOT, 0, before) == whole[:before]
        batches = [each for _, each in BatchRecords(crashed, ROOT).ledger().beyond(0)]
        assert [each for each in batches if each.stop > before] == []
        rows = [each.rows for each in batches]
        assert rows == ([8, 8] if before == end else [8] if where == "within a batch" else [LOST])
        again = demote(ROOT, Address("master", 1), fs=crashed)
        assert (again.start, again.copy) == ((cut, copy) if before == end else (cut, None))
        assert image(crashed, copy, cut, end) == whole[cut:], state
        assert reopened_end(crashed) == cut
        assert find_epochs(crashed, ROOT) == theirs
    report(f"demotion {where}", found)
    assert min(found.values()) >= 1
