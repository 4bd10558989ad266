"""Places that message ids, queue offsets and physical offsets name; damage in a queue is healed as a scan heals it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import QueueKey, StoreReader
from segmentlog.store.errors import FormatError
from segmentlog.store.find.places import places_in_queue, places_of_ids, whole
from segmentlog.store.format.message_encode import pack_host
from support.indexed_stores import Row, build, every_record
from support.store_builder import Geometry, Queues, StoreBuilder, messages
from support.tampering import QueueFiles, overwrite

KEY = QueueKey("T", 0)


def a_store(path: Path, queues: Queues = Queues.WRITTEN) -> list[int]:
    """Physical offsets of 300 messages of queue 0; those of queue 1 are between them."""
    build(path, [Row("T", f"k{i}", queue_id=i % 2) for i in range(600)], segment_bytes=4096, queues=queues)
    return [record.physical_offset for record in every_record(path)][::2]


@pytest.mark.parametrize("queues", Queues)
def test_queue_offsets_lead_to_their_records(queues: Queues, tmp_path: Path) -> None:
    expected = a_store(tmp_path / "s", queues)
    wanted = np.array([0, 1, 2, 77, 299, 300, 10**9])
    found = places_in_queue(StoreReader.open(tmp_path / "s"), KEY, wanted)
    assert found.tolist() == [*(expected[at] for at in (0, 1, 2, 77, 299)), -1, -1]


def test_a_queue_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    a_store(tmp_path / "s")
    assert places_in_queue(StoreReader.open(tmp_path / "s"), QueueKey("T", 9), np.array([0, 1])).tolist() == [-1, -1]


@pytest.mark.parametrize("entry", [(0, 0, 0), (-1, -1, -1), (0, 10, 0), (1 << 50, 200, 0)])
def test_a_damaged_entry_is_healed_by_the_log(entry: tuple[int, int, int], tmp_path: Path) -> None:
    expected = a_store(tmp_path / "s")
    QueueFiles(tmp_path / "s", "T", 0).put(40, *entry)
    wanted = np.array([39, 40, 41])
    assert places_in_queue(StoreReader.open(tmp_path / "s"), KEY, wanted).tolist() == expected[39:42]


def test_a_damaged_record_is_no_hit(tmp_path: Path) -> None:
    expected = a_store(tmp_path / "s")
    overwrite(tmp_path / "s", expected[40] + 4, bytes(4))
    reader = StoreReader.open(tmp_path / "s")
    assert places_in_queue(reader, KEY, np.array([39, 40, 41])).tolist() == [expected[39], -1, expected[41]]
    assert whole(reader.log, np.array(expected[39:42]), reader.log.stop).tolist() == [True, False, True]


def test_only_whole_records_before_the_end_count(tmp_path: Path) -> None:
    expected = a_store(tmp_path / "s")
    log = StoreReader.open(tmp_path / "s").log
    asked = np.array([expected[7], expected[7] + 1, -5, log.stop, 1 << 60, expected[3]])
    assert whole(log, asked, log.stop).tolist() == [True, False, False, False, False, True]
    assert whole(log, asked, expected[7]).tolist() == [False, False, False, False, False, True]


@pytest.mark.parametrize("address", [b"\x0a\0\0\x07", bytes.fromhex("fe80") + bytes(13) + b"\x01"])
def test_ids_of_both_families_are_found_and_those_of_others_are_not(address: bytes, tmp_path: Path) -> None:
    with StoreBuilder(
        tmp_path / "s", geometry=Geometry(segment_bytes=8192), store_host=pack_host(address, 10911)
    ) as builder:
        batch = messages(50)
        flags = pa.array([0x20 if len(address) == 16 else 0] * 50, pa.int32())
        appended = builder.append(batch.append_column("sysFlag", flags) if len(address) == 16 else batch)
    reader = StoreReader.open(tmp_path / "s")
    head = (address + (10911).to_bytes(4, "big")).hex().upper()
    other = (address[:-1] + b"\x99" + (10911).to_bytes(4, "big")).hex().upper()
    offsets = appended.physical_offsets.tolist()
    ids = pa.array([*(f"{head}{offset:016X}" for offset in offsets), f"{other}{offsets[3]:016X}", f"{head}{5:016X}"])
    assert places_of_ids(reader.log, ids, reader.log.stop).tolist() == [*offsets, -1, -1]


def test_a_text_that_is_no_id_is_an_error(tmp_path: Path) -> None:
    a_store(tmp_path / "s")
    log = StoreReader.open(tmp_path / "s").log
    with pytest.raises(FormatError, match="'nothing' is no message id"):
        places_of_ids(log, pa.array(["7F00000100002A9F0000000000000000", "nothing"]), log.stop)
