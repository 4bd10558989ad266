import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.hashing import index_hashes, index_key_hash, java_hash
from segmentlog.store.format.index_file import Geometry, IndexPosition
from segmentlog.store.format.message import Records
from segmentlog.store.format.properties import Properties
from segmentlog.store.index.writer import IndexWriter, indexed_keys, put_keys
from segmentlog.store.log.commit_log import CommitLog
from support.broker_index import Index
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem
from support.records import one

GEOMETRY = Geometry(5, 8)
FIRST_MS = 1_763_700_000_000


def writer(fs: WritableFileSystem) -> IndexWriter:
    fs.make_dir("/index")
    return IndexWriter(fs, "/index", "/making", GEOMETRY)


def put(index: IndexWriter, keys: list[str], first: int = 0) -> None:
    hashes = index_hashes(np.array([java_hash(f"T#{key}") for key in keys], np.int64))
    rows = np.arange(first, first + len(keys))
    index.put(hashes, rows * 100 + 100, FIRST_MS + rows * 1000)


def found(fs: WritableFileSystem, key: str) -> list[int]:
    return sorted(Index("/index", GEOMETRY, fs).query("T", key, 1000))


def places(keys: list[str], wanted: str) -> list[int]:
    return [row * 100 + 100 for row, key in enumerate(keys) if key == wanted]


@given(st.lists(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=20), min_size=1, max_size=6))
def test_every_key_finds_its_records(puts: list[list[str]]) -> None:
    fs = MemoryFileSystem()
    index = writer(fs)
    keys: list[str] = []
    for batch in puts:
        put(index, batch, len(keys))
        keys += batch
    index.write_slots()
    for key in "abcdefgh":
        assert found(fs, key) == places(keys, key)
    assert len(index.names()) == -(-len(keys) // (GEOMETRY.entries - 1))
    assert index.end_offset == len(keys) * 100


def test_entries_are_found_once_their_slots_are_written_and_files_are_dropped_from_a_name_on() -> None:
    fs = MemoryFileSystem()
    index = writer(fs)
    put(index, ["h"])
    assert found(fs, "h") == []
    index.write_slots()
    assert found(fs, "h") == [100]
    put(index, list("abcdefg") * 20, 1)
    names = index.names()
    assert len(set(names)) == 21, "also while the clock stands still"
    index.drop_from(names[1])
    assert index.names() == names[:1]
    assert index.end == IndexPosition(names[-1], 2)


def find_all(fs: WritableFileSystem, keys: str) -> None:
    for key in "abcdefgh":
        assert found(fs, key) == places(list(keys), key)


def test_a_reopened_index_continues_after_its_mark() -> None:
    fs = MemoryFileSystem()
    fs.make_dir("/log")
    index = writer(fs)
    put(index, list("abcda"))
    index.sync()
    mark = index.end
    put(index, list("ee"), 5)  # which a crash may keep or not: it does not count
    index.write_slots()
    index.close()
    again = writer(fs)
    again.open(mark, CommitLog(fs, ["/log"]))
    assert (again.end, again.end_offset) == (mark, 500)
    put(again, list("ba"), 5)
    again.write_slots()
    find_all(fs, "abcdaba")


def test_an_older_file_is_dropped_and_the_newest_is_not() -> None:
    fs = MemoryFileSystem()
    index = writer(fs)
    put(index, list("abcdefghij"))
    old, new = index.names()
    with pytest.raises(ValueError, match="cannot be dropped"):
        index.drop(new)
    index.drop(old)
    assert index.names() == [new]
    put(index, ["a"], 10)
    index.sync()
    assert found(fs, "a") == [1100]
    assert found(fs, "j") == [1000]
    index.close()


@pytest.mark.parametrize("then", ["closed", "not closed", "continued by a broker"])
def test_a_file_that_a_close_left_is_written_again_only_if_that_does_not_hold(then: str) -> None:
    fs = MemoryFileSystem()
    fs.make_dir("/log")
    index = writer(fs)
    put(index, list("abcda"))
    index.sync()
    index.close()
    if then == "continued by a broker":
        broker = writer(fs)
        broker.open(index.end, CommitLog(fs, ["/log"]))
        put(broker, list("be"), 5)
        broker.sync()
        broker.close()
    recorder = RecordingFileSystem(fs)
    again = writer(recorder)
    again.open(index.end, CommitLog(fs, ["/log"]), was_closed=then != "not closed")
    again.write_slots()
    written = sum(len(op.data) for op in recorder.recording.ops if op.kind is Kind.WRITE)
    assert (written == 0) == (then == "closed")
    find_all(fs, "abcda")
    put(again, list("ba"), 5)
    again.write_slots()
    find_all(fs, "abcdaba")


def records_of(*records: bytes | bytearray) -> Records:
    starts = np.cumsum([0, *(len(record) for record in records[:-1])])
    return Records(np.frombuffer(b"".join(records), np.uint8), starts)


def test_keys_are_hashed_for_all_records_except_rollbacks() -> None:
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
