"""S10: whatever is done to a store, in whatever order, it holds what a list holds.

::

    rules   append  batch  flush  tick  close + open  power cut  clock jumps  disk full, room
               │
    model   records: [m0 m1 m2 | m3 m4]     front: on the device for certain; after it a power cut may end the list

The disk is a recorded one in memory, so a power cut leaves one of all the disks that it may leave.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from segmentlog.store import Flush, MessageStore, NoSpaceError, QueueKey, Services, Snapshot, StoreConfig
from support.batches import batch_of
from support.crash.driver import ROOT, TIME, TIMED, Clock
from support.crash.memory_fs import FileNode, MemoryFileSystem
from support.crash.promises import Truth
from support.crash.recorder import RecordingFileSystem
from support.crash.states import Breadth, States
from support.scale import Report, scale
from support.written_stores import SMALL, Record, message

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

CONFIG = replace(SMALL, segment_bytes=8 << 10, flush_interval_ms=1_000, queue_flush_thorough_interval_ms=5_000)
SEED = 10
RUNS, STEPS = scale(10, 30, 10_000), scale(30, 40, 100)
PAGE = 4096


@dataclass
class Counts:
    runs: int = 0
    steps: int = 0
    records: int = 0
    cuts: int = 0
    kept: int = 0
    lost: int = 0
    refused: int = 0
    reopened: int = 0


class Machine(RuleBasedStateMachine):
    def __init__(self, config: StoreConfig, counts: Counts) -> None:
        super().__init__()
        self.config = config
        self.counts = counts
        self.clock = Clock()
        self.serial = 0
        self.model: list[tuple[int, int, int, int]] = []  # serial, physical offset, queue offset, size
        self.certain = 0  # so many of them are on the device
        self.store: MessageStore
        self.counts.runs += 1

    @initialize()
    def begin(self) -> None:
        disk = MemoryFileSystem()
        disk.make_dir(os.path.dirname(ROOT))
        self.power_on(disk)

    def power_on(self, disk: MemoryFileSystem) -> None:
        for _, node in disk.walk():
            if isinstance(node, FileNode):  # a disk that was made of what was kept does not know what was reserved
                disk.take(node, 0, node.size)
        self.disk = disk
        self.fs = RecordingFileSystem(disk)
        self.open()

    def open(self) -> None:
        TIME.clock = self.clock
        self.store = MessageStore.open(ROOT, self.config, fs=self.fs, clock=self.clock)

    def put(self, call: Callable[[], list[tuple[int, int, int]]], first: int) -> None:
        end = self.store.end_offset
        try:
            places = call()
        except NoSpaceError:
            assert self.disk.capacity is not None, "there is room"
            assert self.store.end_offset == end
            self.counts.refused += 1
            return
        self.model += [(first + row, *place) for row, place in enumerate(places)]
        if self.config.flush is Flush.SYNC:
            self.certain = len(self.model)
            assert self.store.flushed_offset == self.store.end_offset

    @rule()
    def append(self) -> None:
        serial, self.serial = self.serial, self.serial + 1

        def call() -> list[tuple[int, int, int]]:
            placed = self.store.append(message(SEED, 0, serial))
            return [(placed.physical_offset, placed.queue_offset, placed.size)]

        self.put(call, serial)

    @rule(count=st.integers(0, 25))
    def append_batch(self, count: int) -> None:
        serial, self.serial = self.serial, self.serial + count

        def call() -> list[tuple[int, int, int]]:
            placed = self.store.append_batch(batch_of(message(SEED, 0, serial + row) for row in range(count)))
            columns = (placed.physical_offsets.tolist(), placed.queue_offsets.tolist(), placed.sizes.tolist())
            return list(zip(*columns, strict=True))

        self.put(call, serial)

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.certain = len(self.model)

    @rule(ms=st.integers(0, 3_000))
    def tick(self, ms: int) -> None:
        self.clock.pass_time(ms)
        try:
            self.store.tick()
        except NoSpaceError:
            assert self.disk.capacity is not None

    @rule(days=st.sampled_from([-10_000, -1, 1, 10_000]))
    def clock_jumps(self, days: int) -> None:
        self.clock.now_ms = max(0, self.clock.now_ms + days * 86_400_000)

    @rule()
    @precondition(lambda self: self.disk.capacity is None)
    def close_and_open(self) -> None:
        self.store.close()
        self.counts.reopened += 1
        self.certain = len(self.model)
        self.open()
        assert self.store.recovered.was_clean
        assert self.store.recovered.cut_bytes == 0

    @rule(pages=st.integers(0, 3))
    def disk_fills(self, pages: int) -> None:
        self.disk.capacity = (self.disk.used_pages + pages) * PAGE

    @rule()
    def room_is_made(self) -> None:
        self.disk.capacity = None

    @rule(seed=st.integers(0, 1 << 30), unflushed=st.integers(0, 4))
    def power_cut(self, seed: int, unflushed: int) -> None:
        for _ in range(unflushed):
            self.append()
        recording = self.fs.recording
        breadth = Breadth(exhaustive_bits=2, random_subsets=6, seed=seed)
        states = list(States(recording, breadth, lambda point: point == len(recording.ops)))
        self.counts.cuts += 1
        self.power_on(random.Random(seed).choice(states).disk())
        end = self.store.end_offset
        left = [each for each in self.model if each[1] + each[3] <= end]
        assert len(left) >= self.certain, f"{self.certain} were on the device, {len(left)} are left"
        self.counts.kept += len(left) - self.certain
        self.counts.lost += len(self.model) - len(left)
        self.model = left
        self.certain = len(left)
        self.compare()

    @invariant()
    def count(self) -> None:
        self.counts.steps += 1

    def compare(self) -> None:
        """Compare log, queues and index with the model, and make sure that nothing else is there."""
        image = b"".join(
            self.disk.read(f"{ROOT}/commitlog/{listed.name}", 0, listed.size)
            for listed in self.disk.list_dir(f"{ROOT}/commitlog")
        )
        nexts: dict[QueueKey, int] = {}
        behind = 0
        for serial, physical, queue_offset, size in self.model:
            assert physical == behind or (
                physical % CONFIG.segment_bytes == 0 and physical - behind < CONFIG.segment_bytes
            )
            record = Record.of(image[physical : physical + size])
            assert not record.differs_from(message(SEED, 0, serial))
            key = QueueKey(record.topic, record.queue_id)
            assert (record.physical_offset, record.queue_offset) == (physical, queue_offset)
            assert queue_offset == nexts.get(key, 0)
            nexts[key] = queue_offset + 1
            behind = physical + size
        assert self.store.end_offset - behind < CONFIG.segment_bytes
        assert not any(image[self.store.end_offset :])
        snapshot = Snapshot.open(ROOT, fs=self.fs)
        found = [bounds for topic in snapshot.topics() for bounds in snapshot.queues(topic)]
        assert {bounds.key: bounds.max_offset for bounds in found if len(bounds)} == nexts
        truth = Truth.of(self.disk, CONFIG)
        truth.check_queues(self.disk, self.store.end_offset)
        truth.check_index(self.disk, self.store.end_offset)
        self.counts.records += len(self.model)

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.capacity = None
            self.store.wait_dispatched()
            self.store.close()
            self.compare()


@pytest.mark.parametrize("flush", Flush)
def test_a_store_holds_the_messages_of_its_model(flush: Flush, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in TIMED:
        monkeypatch.setattr(module, "time", TIME)
    counts = Counts()
    run_state_machine_as_test(
        lambda: Machine(replace(CONFIG, flush=flush, services=Services.ON_CALL), counts),
        settings=settings(
            max_examples=RUNS,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    report(f"S10 {flush.value}, derandomised", counts)
    assert counts.runs >= RUNS
    assert counts.steps >= RUNS * STEPS // 2
    assert min(counts.refused, counts.reopened) >= RUNS // 10
    assert flush is Flush.SYNC or min(counts.kept, counts.lost) >= RUNS // 10
    assert counts.cuts >= RUNS
