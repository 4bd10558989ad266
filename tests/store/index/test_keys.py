"""Index keys of records: which are hashed, and that no record is indexed twice."""

import numpy as np

from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.format.message import Records
from segmentlog.store.format.properties import Properties
from segmentlog.store.index.keys import indexed_keys, put_keys
from segmentlog.store.index.writer import IndexWriter
from support.crash.memory_fs import MemoryFileSystem
from support.records import one


def records_of(*records: bytes | bytearray) -> Records:
    starts = np.cumsum([0, *(len(record) for record in records[:-1])])
    return Records(np.frombuffer(b"".join(records), np.uint8), starts)


def test_all_records_but_those_rolled_back_have_their_keys_hashed() -> None:
    keyed = b"UNIQ_KEY\x01u\x02KEYS\x01k1 k2\x02"
    flags = (0, 0x4, 0x8, 0xC, 0x80)
    records = records_of(*(one(topic="orders", properties=keyed, sys_flag=flag) for flag in flags))
    hashes, rows = indexed_keys(records, Properties(records))
    of_one = [index_key_hash("orders", key) for key in ("u", "k1", "k2")]
    assert hashes.tolist() == of_one * 4
    assert rows.tolist() == [row for row in (0, 1, 2, 4) for _ in of_one]


def test_records_before_the_last_indexed_one_are_not_indexed_again() -> None:
    disk = MemoryFileSystem()
    disk.make_dir("/index")
    index = IndexWriter(disk, "/index", "/making", Geometry(20, 80))
    records = records_of(*(one(properties=b"KEYS\x01k%d\x02" % number) for number in range(4)))
    physical = records.positions + 4096
    assert put_keys(index, records, physical) == 4
    assert put_keys(index, records, physical) == 1  # the last one again, as RocketMQ does: it may have more keys
    assert put_keys(index, records, physical - 1) == 0
    index.close()
