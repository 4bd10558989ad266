"""One message as an object: each field, compressed bodies, damage, and times that no calendar has."""

import dataclasses
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segmentlog.store import CorruptRecordError, MessageStore, Outgoing, QueueKey, StoreReader
from segmentlog.store.format.message import Problem
from segmentlog.store.read import message
from segmentlog.store.read.message import Message, read_message
from support.written_stores import SMALL

BORN = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
STORED = BORN + timedelta(seconds=2, milliseconds=125)


def ms(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    config = dataclasses.replace(SMALL, compress_over_bytes=400, record_crc=False)
    with MessageStore.open(tmp_path / "store", config, clock=lambda: ms(STORED)) as made:
        made.append(
            Outgoing(
                topic="orders",
                queue_id=2,
                body=b"body",
                tags="t",
                keys="k1 k2",
                properties={"a": "1", "UNIQ_KEY": "U"},
                born_timestamp=ms(BORN),
                flag=7,
            )
        )
        made.append(Outgoing(topic="orders", queue_id=2, body=b"long " * 1000))
    return tmp_path / "store"


def read(path: Path, queue_offset: int) -> Message:
    reader = StoreReader.open(path)
    (place,) = reader.queue(QueueKey("orders", 2)).entries(queue_offset, queue_offset + 1)["physical_offset"].tolist()
    found = reader.log.record_at(place)
    assert found is not None
    return read_message(reader.log, found)


def patch(path: Path, at: int, data: bytes) -> None:
    segment = path / "commitlog" / f"{0:020d}"
    whole = bytearray(segment.read_bytes())
    whole[at : at + len(data)] = data
    segment.write_bytes(whole)


def test_every_field_is_as_it_was_put(store: Path) -> None:
    found = read(store, 0)
    assert (found.topic, found.queue_id, found.queue_offset, found.physical_offset) == ("orders", 2, 0, 0)
    assert (found.body, found.tags, found.keys, found.uniq_key) == (b"body", "t", "k1 k2", "U")
    assert found.properties["a"] == "1"
    assert (found.born_timestamp, found.store_timestamp) == (BORN, STORED)
    assert (found.flag, found.reconsume_times, found.prepared_transaction_offset) == (7, 0, 0)
    assert found.body_crc == zlib.crc32(b"body") & 0x7FFFFFFF
    assert found.store_host == "127.0.0.1:10911"
    assert found.message_id == "7F00000100002A9F" + "0" * 16
    assert read(store, 1).physical_offset == found.store_size


def test_a_message_without_properties_has_none_of_them(store: Path) -> None:
    found = read(store, 1)
    assert (found.tags, found.keys) == (None, None)


def test_a_compressed_body_is_inflated(store: Path) -> None:
    found = read(store, 1)
    assert found.body == b"long " * 1000
    assert found.store_size < 1000


def test_a_body_larger_than_it_may_be_is_an_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "MAX_BODY_BYTES", 4999)
    with pytest.raises(CorruptRecordError, match=Problem.INFLATE.text):
        read(store, 1)
    monkeypatch.setattr(message, "MAX_BODY_BYTES", 5000)
    assert len(read(store, 1).body) == 5000


def test_a_body_that_contradicts_its_crc_is_an_error(store: Path) -> None:
    place = (store / "commitlog" / f"{0:020d}").read_bytes().index(b"body")
    patch(store, place, b"BODY")
    with pytest.raises(CorruptRecordError) as caught:
        read(store, 0)
    assert caught.value.offset == 0


@pytest.mark.parametrize("field", ["born_timestamp", "store_timestamp"])
@pytest.mark.parametrize("millis", [-62_135_596_800_001, 253_402_300_800_000, (1 << 63) - 1])
def test_a_time_in_no_calendar_year_is_an_error(store: Path, field: str, millis: int) -> None:
    at = {"born_timestamp": 40, "store_timestamp": 56}[field]
    patch(store, at, millis.to_bytes(8, "big", signed=True))
    with pytest.raises(CorruptRecordError, match=f"its {field} of {millis} ms"):
        read(store, 0)


@pytest.mark.parametrize("millis", [-62_135_596_800_000, 253_402_300_799_999])
def test_the_first_and_the_last_year_can_be_read(store: Path, millis: int) -> None:
    patch(store, 40, millis.to_bytes(8, "big", signed=True))
    assert ms(read(store, 0).born_timestamp) == millis
