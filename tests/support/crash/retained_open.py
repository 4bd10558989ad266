"""Cuts the power everywhere in a store that is written while its files expire, recovers, and judges.

::

    appends, acknowledged ──► marks: ends of the log that were promised
    retention service     ──► drops the oldest files         all of it recorded ──► States ──► recovered ──► compared

What is judged: the log has no gap, and holds what was promised; from its start on all messages are there and no others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from segmentlog.store.directory.retention_history import deletions
from segmentlog.store.files.segments import list_segments
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.read.spec import ScanSpec
from segmentlog.store.read.store_reader import StoreReader
from segmentlog.store.retention.settings import RetentionSettings
from segmentlog.store.retention.state import Kind
from segmentlog.store.types import QueueKey, QueueRange
from segmentlog.store.write.message_store import MessageStore

from .campaign import new_disk, reopen
from .driver import CONFIG, ROOT, TIME, Clock, make_message
from .memory_fs import MemoryFileSystem
from .promises import BrokenPromiseError
from .recorder import Recording, RecordingFileSystem
from .states import Breadth, States, labels

Messages = dict[tuple[QueueKey, int], tuple[int, bytes]]
"""Physical offset and body by queue and queue offset."""

_SETTINGS = RetentionSettings(
    file_reserved_hours=0, files_per_run=2, log_pause_ms=0, queue_pause_ms=0, start_ms=0, interval_ms=100
)
_SPEC = ScanSpec(columns=("body", "queueOffset", "physicalOffset"))


@dataclass(frozen=True, slots=True)
class Written:
    """Calls of a store that was written while its files expired; all messages that it acknowledged."""

    recording: Recording
    issued: Messages


def record_written() -> Written:
    """Write a store whose files expire at once; each end of the log that was acknowledged is marked."""
    recorder = RecordingFileSystem(new_disk())
    clock = TIME.clock = Clock()
    issued: Messages = {}
    draw = Random(7)
    store = MessageStore.open(ROOT, CONFIG, fs=recorder, clock=clock, retention=_SETTINGS)
    for number in range(90):
        message = make_message(draw, 400 if number % 3 else 1500, topic=f"Topic{number % 2}", queue_id=0)
        placed = store.append(message)
        issued[QueueKey(message.topic, 0), placed.queue_offset] = (placed.physical_offset, bytes(message.body))
        recorder.mark(placed.physical_offset + placed.size)
        clock.pass_time(40)
        store.tick()
    assert store.retention is not None
    assert store.retention.counts.files[Kind.LOG] >= 2
    assert store.retention.counts.files[Kind.QUEUE] >= 1
    store.close()
    return Written(recorder.recording, issued)


def cut_written(written: Written, breadth: Breadth, points: Callable[[int], bool]) -> tuple[int, int]:
    """Judge states of a store that was written; return how many states, and in how many the log began later."""
    states = later = 0
    for state in States(written.recording, breadth, points):
        promised = max(labels(written.recording, state), default=0)
        disk = state.disk()
        try:
            store = reopen(disk, CONFIG)
            end = store.end_offset
            store.close()
            start = _judge(disk, written.issued, promised, end)
        except Exception as error:
            ops = written.recording.ops
            raise BrokenPromiseError(
                error.promise if isinstance(error, BrokenPromiseError) else "opening failed",
                f"{error!r} [crash point {state.point} of {len(ops)}, after "
                f"{ops[state.point - 1] if state.point else 'nothing'}, state: {state.description}]",
            ) from error
        states += 1
        later += start > 0
    return states, later


def _judge(disk: MemoryFileSystem, issued: Messages, promised: int, end: int) -> int:
    segments = list_segments(disk, [StorePaths(ROOT).commit_log])
    start = segments[0].base if segments else 0
    for one, following in pairwise(segments):
        if one.stop != following.base:
            raise BrokenPromiseError("gap", f"nothing is between {one.path} and {following.path}")
    if end < promised:
        raise BrokenPromiseError("durable", f"the log ends at {end}, {promised} was promised")
    expected = {at: found for at, found in issued.items() if start <= found[0] < end}
    found = dict(_messages(disk))
    if found != expected:
        lost, more = expected.keys() - found.keys(), found.keys() - expected.keys()
        raise BrokenPromiseError("messages", f"lost {sorted(lost)}, invented {sorted(more)}")
    named = {each.log_base for each in deletions(disk, ROOT)}
    missing = set(range(0, start, CONFIG.segment_bytes)) - named
    if missing:
        raise BrokenPromiseError("history", f"nothing says when the segments at {sorted(missing)} were deleted")
    return start


def _messages(disk: MemoryFileSystem) -> Iterator[tuple[tuple[QueueKey, int], tuple[int, bytes]]]:
    reader = StoreReader.open(ROOT, fs=disk)
    for topic in reader.topics():
        for bounds in reader.queues(topic):
            wanted = QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
            for task in reader.plan([wanted], max_bytes=1 << 20):
                for batch in reader.scan(task, _SPEC):
                    for row in batch.to_pylist():
                        yield (bounds.key, row["queueOffset"]), (row["physicalOffset"], row["body"])
