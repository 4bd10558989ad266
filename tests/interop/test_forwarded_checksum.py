import shutil
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, QueueKey, Snapshot
from support import oracle, releases, writing

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=1)]

STALE = "origin\x01elsewhere\x02__CRC32#\x018195093202\x02"
COUNT = 5


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("options", [[], ["--crash"]], ids=["closed", "crashed"])
@pytest.mark.parametrize("appends_crc", [False, True], ids=["without checksums", "with checksums"])
@pytest.mark.parametrize("stale_at", [2, COUNT - 1], ids=["in the middle", "last"])
def test_rocketmq_and_we_keep_its_record(tmp_path: Path, stale_at: int, appends_crc: bool, options: list[str]) -> None:
    store = tmp_path / "store"
    config = writing.broker_config(writing.SMALL) | {"enabledAppendPropCRC": appends_crc}
    planned = [writing.planned(message) for message in writing.plain(COUNT, seed=5, topic="Orders", queues=1)]
    planned[stale_at] |= {"propertiesString": STALE}
    put = oracle.write(store, config, releases.NEWEST, planned, *options)
    assert [line["status"] for line in put] == ["PUT_OK"] * COUNT
    theirs = [line for line in oracle.dump(store, config, releases.NEWEST) if line["type"] == "message"]
    assert len(theirs) == COUNT

    assert len(Snapshot.open(store).bounds(QueueKey("Orders", 0))) == COUNT
    shutil.copytree(store, tmp_path / "copy")
    with MessageStore.open(tmp_path / "copy", writing.SMALL) as ours:
        assert ours.recovered.cut_bytes == 0
        assert ours.recovered.cut_records == 0
        assert len(ours.bounds(QueueKey("Orders", 0))) == COUNT
