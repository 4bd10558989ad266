import struct

import numpy as np

from segmentlog.store.format.compaction_queue import decode_units

ROCKETMQ = bytes.fromhex("0000000000000000000001640000000000000000000001a223e6f1a2000000000000001b0001ffffffff00000000")
"""First unit of a queue that RocketMQ 5.5.0 compacted: the message at queue offset 27."""
END = struct.pack(">qiqqqhii", -1, 0, 0, 0, 0, 0, -1, 0)


def test_a_unit_of_rocketmq_is_decoded() -> None:
    (unit,) = decode_units(ROCKETMQ + END + bytes(46 * 3))
    fields = ("physical_offset", "size", "store_time", "queue_offset", "messages", "compacted_offset")
    assert [int(unit[name]) for name in fields] == [0, 356, 1795898667426, 27, 1, -1]


def test_what_is_no_unit_is_left_out() -> None:
    good = struct.pack(">qiqqqhii", 5, 1, 0, 7, 3, 1, 0, 0)
    bad = [(-1, 1, 3, 1), (5, 0, 3, 1), (5, 1, -3, 1), (5, 1, 3, 0), (5, -1, 3, 1)]
    units = [struct.pack(">qiqqqhii", phy, size, 0, 7, offset, count, 0, 0) for phy, size, offset, count in bad]
    assert decode_units(b"".join([*units, good, good[:45]]))["queue_offset"].tolist() == [3]
    assert decode_units(b"").size == 0
    assert decode_units(np.random.default_rng(7).bytes(46 * 100)).size <= 100
