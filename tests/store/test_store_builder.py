"""The builder of test stores: its files, and what real RocketMQ reads from them."""

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.message import MAGIC_BLANK
from segmentlog.store.format.message_encode import pack_host
from segmentlog.store.format.walk import walk
from support import oracle, releases
from support.store_builder import Geometry, Queues, StoreBuilder, messages

SMALL = Geometry(segment_bytes=4096, queue_segment_entries=30)


def test_segments_are_full_size_and_end_with_a_blank(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "store", geometry=SMALL) as builder:
        appended = builder.append(messages(100))
    segments = sorted((tmp_path / "store" / "commitlog").iterdir())
    assert [int(path.name) for path in segments] == [4096 * i for i in range(len(segments))]
    found = []
    for path in segments:
        data = np.fromfile(path, np.uint8)
        assert data.size == 4096
        walked = walk(data, int(path.name), 0, data.size)
        assert not walked.damage
        assert walked.blank == (path is not segments[-1])
        found += (walked.positions + int(path.name)).tolist()
    assert len(segments) > 3
    assert found == appended.physical_offsets.tolist()


def test_a_record_fills_its_segment_only_with_room_for_the_blank(tmp_path: Path) -> None:
    sizes = StoreBuilder(tmp_path / "probe", geometry=SMALL).append(messages(2, queues=1, tags=("x",))).sizes
    assert sizes[0] == sizes[1]
    exact = Geometry(segment_bytes=2 * int(sizes[0]) + 8, queue_segment_entries=30)
    builder = StoreBuilder(tmp_path / "exact", geometry=exact)
    assert builder.append(messages(3, queues=1, tags=("x",))).physical_offsets.tolist() == [
        0,
        sizes[0],
        exact.segment_bytes,
    ]
    first = (tmp_path / "exact" / "commitlog" / f"{0:020d}").read_bytes()
    assert first[-8:] == (8).to_bytes(4, "big") + (MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")
    tight = Geometry(segment_bytes=exact.segment_bytes - 1, queue_segment_entries=30)
    assert StoreBuilder(tmp_path / "tight", geometry=tight).append(
        messages(3, queues=1, tags=("x",))
    ).physical_offsets.tolist() == [0, tight.segment_bytes, 2 * tight.segment_bytes]


def test_queues_go_on_over_batches_and_files(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", geometry=SMALL)
    builder.append(messages(50, queues=1))
    appended = builder.append(messages(20, queues=1, first=50))
    assert appended.queue_offsets.tolist() == list(range(50, 70))
    files = sorted((tmp_path / "store" / "consumequeue" / "Orders" / "0").iterdir())
    assert [path.name for path in files] == [f"{600 * i:020d}" for i in range(3)]
    assert {path.stat().st_size for path in files} == {600}
    assert np.fromfile(files[2], ">i8", 1)[0] == appended.physical_offsets[10]


def test_a_message_too_large_for_a_segment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not fit into a segment of 4096"):
        StoreBuilder(tmp_path / "store", geometry=SMALL).append(messages(1, body_bytes=4096))


@pytest.mark.scaled(quick=1)
@pytest.mark.interop
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
@pytest.mark.parametrize("version", releases.STORES)
def test_rocketmq_reads_a_built_store(tmp_path: Path, version: str) -> None:
    hostless = messages(40, topic="Plain", queues=2, store_time_start=1_700_000_000_100)
    sys_flags = np.arange(40) % 4 * 4  # none, prepared, commit, rollback
    batches = [
        messages(100, tags=("paid", "geschickt", "已支付")),
        hostless.append_column("sysFlag", pa.array(sys_flags.astype(np.int32))),
        messages(30, topic="%RETRY%group", queues=1, store_time_start=1_700_000_000_200).append_column(
            "bornHost", pa.array([pack_host(b"\xfe\x80" + bytes(13) + b"\x01", 9)] * 30, pa.binary())
        ),
    ]
    record_crc = RecordCrc.PROPERTY if releases.RECORD_CRC.holds(version) else RecordCrc.ABSENT
    with StoreBuilder(tmp_path / "store", geometry=SMALL, record_crc=record_crc) as builder:
        for batch in batches:
            builder.append(batch)
    config: dict[str, object] = {**SMALL.broker_config()}
    if record_crc is RecordCrc.PROPERTY:
        config |= {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True}
    lines = oracle.dump(tmp_path / "store", config, version)
    store = lines[0]
    assert (store["abort"], store["maxPhyOffset"]) == (False, builder.end)
    read = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in lines if m["type"] == "message"}
    numbered: dict[tuple[str, int], int] = {}
    for batch in batches:
        queued = batch.filter(pa.array(sys_flags % 8 == 0)) if "sysFlag" in batch.schema.names else batch
        for row in queued.to_pylist():
            key = (row["topic"], row["queueId"])
            message = read.pop((*key, numbered.setdefault(key, 0)))
            numbered[key] += 1
            assert (base64.b64decode(message["body"]), message["tags"], message["keys"]) == (
                row["body"],
                row["tags"],
                row["keys"],
            )
            assert message["storeTimestamp"] == row["storeTimestamp"]
    assert not read
    assert sum(line["type"] == "record" for line in lines) == 20


@pytest.mark.interop
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
def test_rocketmq_derives_queues_that_were_not_written(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "store", geometry=SMALL, queues=Queues.MISSING) as builder:
        builder.append(messages(100))
    lines = oracle.dump(tmp_path / "store", SMALL.broker_config(), releases.NEWEST)
    assert sum(line["type"] == "message" for line in lines) == 100
