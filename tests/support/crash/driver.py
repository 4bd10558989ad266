"""Drives one store, and remembers what it asked for.

::

    Driver    put, put_batch, flush, tick, reopen      ──► MessageStore ──► RecordingFileSystem
                │                                                              ▲
                └ Issued: calls, in order                mark: the log's end that was acknowledged
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from segmentlog.store.config import Flush, Services, StoreConfig
from segmentlog.store.directory import documents
from segmentlog.store.dispatch import dispatcher
from segmentlog.store.encode import message as outgoing
from segmentlog.store.encode.message import Outgoing
from segmentlog.store.errors import NoSpaceError
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.index import writer as index_writer
from segmentlog.store.write import batch_commit as batch_append
from segmentlog.store.write import housekeeping as upkeep
from segmentlog.store.write import retention_service
from segmentlog.store.write.message_store import MessageStore

from ..batches import batch_of
from .recorder import RecordingFileSystem

ROOT = "/disk/store"
START_MS = 1_763_700_000_000
SEGMENT_BYTES = 16 << 10

CONFIG = StoreConfig(
    segment_bytes=SEGMENT_BYTES,
    queue_segment_entries=20,
    index_slots=20,
    index_entries=80,
    flush=Flush.SYNC,
    queue_flush_interval_ms=50,
    queue_flush_log_bytes=8 << 10,
    queue_flush_thorough_interval_ms=400,
    services=Services.ON_CALL,
)

LATE = replace(CONFIG, queue_flush_log_bytes=256 << 10, queue_flush_thorough_interval_ms=1 << 40)
"""Segments are filled many times over before queues and index are flushed: only the log knows what was put."""
GEOMETRIES = {"flushed": CONFIG, "late": LATE}


class Clock:
    """A clock that goes on by a millisecond each time it is asked, and jumps when told."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self.passed_ms = 0

    def __call__(self) -> int:
        self.pass_time(1)
        return self.now_ms

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.passed_ms += ms


class Time:
    """Stands in for the module ``time`` within the store, so that a run is the same each time."""

    clock = Clock()

    def time(self) -> float:
        return self.clock() / 1000

    def time_ns(self) -> int:
        return self.clock() * 1_000_000

    def monotonic(self) -> float:
        """Seconds that passed; asking takes no time."""
        return self.clock.passed_ms / 1000


TIME = Time()
TIMED = (batch_append, dispatcher, documents, index_writer, outgoing, retention_service, upkeep)
"""Modules that ask for the time; tests replace it by `TIME`."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A message that was asked to be stored; where it went, if that is known."""

    serial: int
    message: Outgoing
    physical_offset: int | None
    size: int = 0
    queue_offset: int = 0
    refused: bool = False  # whether the store said that nothing was appended: there was no room


@dataclass(slots=True)
class Driver:
    """Does things to one store and remembers what it asked for."""

    recorder: RecordingFileSystem
    fs: WritableFileSystem  # what the store writes through; ``recorder``, or a wrapper of it
    config: StoreConfig = CONFIG
    seed: int = 0
    clock: Clock = field(default_factory=Clock)
    issued: list[Issued] = field(default_factory=list)
    # called with what a call of the store raised; by default nothing is caught
    on_error: Callable[[Exception], None] | None = None
    serial: int = 0
    store: MessageStore | None = None
    _refused: bool = False
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._rng.seed(self.seed)

    # Calls of the store

    def open(self) -> None:
        """Open the store; what recovery finds in the log is promised from then on."""
        if self.store is None and self._try(self._open):
            assert self.store is not None
            self.promise(self.store.end_offset)

    def _open(self) -> None:
        TIME.clock = self.clock
        self.store = MessageStore.open(ROOT, self.config, fs=self.fs, clock=self.clock)

    def close(self) -> None:
        if self.store is not None:
            store, self.store = self.store, None
            end = store.end_offset
            if self._try(store.close):
                self.promise(end)

    def reopen(self) -> None:
        self.close()
        self.open()

    def flush(self) -> None:
        if self.store is not None and self._try(self.store.flush):
            self.promise(self.store.end_offset)

    def tick(self, ms: int = 60) -> None:
        self.clock.pass_time(ms)
        if self.store is not None:
            self._try(self.store.tick)

    def put(self, message: Outgoing) -> None:
        self.serial += 1
        serial, store = self.serial, self.store
        if store is None:
            return

        def act() -> None:
            placed = store.append(message)
            self.issued.append(Issued(serial, message, placed.physical_offset, placed.size, placed.queue_offset))
            if self.config.flush is Flush.SYNC:
                self.promise(placed.physical_offset + placed.size)

        if not self._try(act):
            self.issued.append(Issued(serial, message, None, refused=self._refused))

    def put_batch(self, messages: list[Outgoing]) -> None:
        first = self.serial + 1
        self.serial += len(messages)
        store = self.store
        if store is None:
            return

        def act() -> None:
            placed = store.append_batch(batch_of(messages))
            rows = zip(placed.physical_offsets, placed.sizes, placed.queue_offsets, strict=True)
            for row, (offset, size, queue_offset) in enumerate(rows):
                self.issued.append(Issued(first + row, messages[row], int(offset), int(size), int(queue_offset)))
            if self.config.flush is Flush.SYNC and messages:
                self.promise(int(placed.physical_offsets[-1] + placed.sizes[-1]))

        if not self._try(act):
            refused = self._refused
            self.issued += [Issued(first + row, each, None, refused=refused) for row, each in enumerate(messages)]

    def promise(self, end: int) -> None:
        """Note that all of the log below an offset was promised to be there."""
        self.recorder.mark(end)

    def _try(self, act: Callable[[], object]) -> bool:
        if self.on_error is None:
            act()
            return True
        try:
            act()
        except Exception as error:  # noqa: BLE001 - what may be raised is for the test to judge
            self._refused = isinstance(error, NoSpaceError)
            self.on_error(error)
            return False
        return True

    # Messages

    def message(self, size: int | None = None, **fields: object) -> Outgoing:
        """A message that no other is like, for one of a few queues."""
        return make_message(self._rng, size, **fields)


def make_message(rng: random.Random, size: int | None = None, **fields: object) -> Outgoing:
    """Make a message for one of a few queues, with a body of so many bytes and fields of its own."""
    number = rng.randrange(1 << 30)
    length = rng.choice([0, 9, 60, 250, 500, 900]) if size is None else size
    values: dict[str, object] = {
        "topic": rng.choice(["TopicA", "TopicA", "TopicB"]),
        "queue_id": rng.randrange(2),
        "body": rng.randbytes(length),
        "tags": rng.choice([None, "red", "blue"]),
        "keys": rng.choice([None, f"k{number % 7}", f"k{number % 7} j{number % 5}"]),
        "uniq_key": f"{number:08X}",
        "born_timestamp": START_MS,
    }
    return Outgoing(**(values | fields))  # type: ignore[arg-type]
