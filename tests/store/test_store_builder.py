import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.message_encode import pack_host
from support import oracle, releases
from support.store_builder import Geometry, Queues, StoreBuilder, messages

SMALL = Geometry(segment_bytes=4096, queue_segment_entries=30)


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
