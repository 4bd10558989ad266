import json
from pathlib import Path

import pytest

from segmentlog.store.directory.kinds import store_facts
from support import fixtures

KINDS = {
    "queues-rocksdb-5.5.0": "queues in RocksDB (storeType=defaultRocksDB)",
    "queues-both-5.5.0": "queues in RocksDB and in files",
    "queues-both-apart-5.5.0": "queues in RocksDB and in files",
    "queues-moved-5.5.0": "queues in RocksDB and in files",
    "lite-5.5.0": "light queues, 4 in files",
    "lite-groups-5.1.0": "positions of groups (enableLmq): those of lmqConsumerOffset.json count",
    "lite-groups-5.5.0": "positions of groups (enableLmq): those of lmqConsumerOffset.json count",
    "index-rocksdb-5.5.0": "keys may be in RocksDB",
    "queues-rocksdb-5.3.3": "queues in RocksDB (storeType=defaultRocksDB)",
    "lite-rocksdb-5.5.0": "queues in RocksDB (storeType=defaultRocksDB)",
    "cq-ext-4.9.1": "enableConsumeQueueExt",
}


@pytest.mark.scaled(quick=8)
@pytest.mark.conformance
@pytest.mark.parametrize("name", fixtures.kinds())
def test_the_release_and_the_settings_of_a_fixture_are_stated(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    found = store_facts(store)
    assert all(Path(fact.path).exists() for fact in found)
    stated = [fact.text for fact in found if fact.name == "release"]
    if fixtures.about(name)["rocketmq"].startswith("4."):
        assert stated == []  # later releases can leave the same names
    else:
        later = "RocketMQ later than 5.3.3" if "5.5.0" in name else "RocketMQ 5.0 or later"
        of_record = "RocketMQ 5.1 or later: the first record is of version 2"
        assert stated == [of_record if name == "long-topic-5.3.3" else later]
    settings = " ".join(fact.text for fact in found if fact.name == "setting")
    assert ("enabledAppendPropCRC=true" in settings) == fixtures.config(name).get("enabledAppendPropCRC", False)
    if (store / "commitlog").exists() and any((store / "commitlog").iterdir()):
        size = fixtures.config(name).get("mappedFileSizeCommitLog", 1 << 30)
        assert f"mappedFileSizeCommitLog={size}," in settings


@pytest.mark.conformance
@pytest.mark.parametrize("name", KINDS)
def test_the_kind_of_a_fixture_is_recognised(name: str, tmp_path: Path) -> None:
    found = [fact.text for fact in store_facts(fixtures.unpack(name, tmp_path)) if fact.name == "kind"]
    assert any(KINDS[name] in text for text in found), found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dledger-n0", "DLedger: read, streamed and archived"),
        ("timerwheel", "timerWheelEnable"),
        ("tieredstore", "tiered storage"),
        ("epochFileCheckpoint", "controller mode"),
        ("batchconsumequeue", "batch queues: messages that were sent in batches"),
        (".segmentlog", "segmentlog: was opened for writing"),
        ("compaction/compactionLog/T", "compacted topics"),
    ],
)
def test_other_kinds_are_recognised_by_name(name: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir(parents=True)
    assert [fact.text for fact in store_facts(tmp_path) if fact.text.startswith(expected)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"dataVersion": {"counter": 1}}, ["RocketMQ 4, which wrote the version of the topics"]),
        ({"dataVersion": {"stateVersion": 0}}, ["RocketMQ 5.0 or later, which wrote the version of the topics"]),
        ({}, []),
        ([], []),
    ],
)
def test_the_topics_tell_a_release(document: object, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps(document), encoding="utf-8")
    assert [fact.text for fact in store_facts(tmp_path)] == expected
    (tmp_path / ".segmentlog").mkdir()  # topics may be of this library
    assert [fact.name for fact in store_facts(tmp_path)] == ["kind"]


@pytest.mark.parametrize("head", [b"", b"\0" * 8, b"\x7f" * 4 + b"\xda\xa3\x20\xa7", b"\0\0\0\1\xda\xa3\x20\xa7"])
def test_a_damaged_first_record_tells_nothing(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(head)
    assert {fact.name for fact in store_facts(tmp_path)} <= {"setting"}
    assert not [fact for fact in store_facts(tmp_path) if "CRC" in fact.text]


def test_a_directory_without_a_store_has_no_facts(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert store_facts(tmp_path) == []
    assert store_facts(tmp_path / "nowhere") == []


def test_a_link_among_the_queues_costs_only_facts_about_queues(tmp_path: Path) -> None:
    for name in ("consumequeue", "compaction", "consumequeue_ext"):
        (tmp_path / name).mkdir()
    (tmp_path / "consumequeue" / "T").symlink_to(tmp_path)
    assert [fact.name for fact in store_facts(tmp_path)] == ["release", "kind"]


@pytest.mark.conformance
def test_queues_that_are_in_the_database_apart_alone_are_stated(tmp_path: Path) -> None:
    store = fixtures.unpack("queues-rocksdb-5.5.0", tmp_path)
    apart = (store / "consumequeue").rename(store / "consumequeue_rocksdb")
    assert [fact.path for fact in store_facts(store) if "queues in RocksDB (" in fact.text] == [str(apart)]
