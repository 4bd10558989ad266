import struct
from pathlib import Path

import numpy as np

from segmentlog.store.entries.healed import Block, Healed, heal
from segmentlog.store.entries.walk_cache import WalkCache
from segmentlog.store.format.consume_queue import Entries
from segmentlog.store.format.message import Mask
from segmentlog.store.read.snapshot import Snapshot
from segmentlog.store.types import QueueKey
from support.tampering import QueueFiles, overwrite

KEY = QueueKey("Orders", 1)
COUNT = 50


def healed_by_log(two_queues: Path, block: Block, doubtful: Mask) -> Healed:
    snapshot = Snapshot.open(two_queues)
    return heal(snapshot, WalkCache(snapshot.log, [KEY]), KEY, block, doubtful)


def doubtful(*rows: int) -> Mask:
    found = np.zeros(COUNT, np.bool_)
    found[list(rows)] = True
    return found


def test_only_doubtful_entries_change_also_in_a_part_of_a_queue(two_queues: Path, sound: Entries) -> None:
    wrong = sound.copy()
    wrong["size"][[3, 30]] = 99_999
    healed = healed_by_log(two_queues, Block(np.arange(COUNT), wrong), doubtful(30))
    assert healed.entries[30] == sound[30]
    assert healed.entries[3]["size"] == 99_999
    assert healed.sound.all()
    assert not healed.confirmed.any()
    QueueFiles(two_queues, "Orders", 1).zero(20, 23)
    healed = healed_by_log(two_queues, Block(np.arange(20, 23), np.zeros(3, sound.dtype)), np.ones(3, np.bool_))
    assert healed.entries.tolist() == sound[20:23].tolist()


def test_burnt_queue_offsets_are_confirmed(two_queues: Path, sound: Entries) -> None:
    """5.0 to 5.1.0: the numbers of records jump, their places in the queue do not. The place counts."""
    for row in range(30, COUNT):
        overwrite(two_queues, int(sound["physical_offset"][row]) + 20, struct.pack(">q", row + 1000))
    rows = range(30, COUNT)
    healed = healed_by_log(two_queues, Block(np.arange(COUNT), sound), doubtful(*rows))
    assert healed.entries.tolist() == sound.tolist()
    assert np.flatnonzero(healed.confirmed).tolist() == list(rows)
