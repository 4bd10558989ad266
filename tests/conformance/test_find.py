"""Look-ups in stores that RocketMQ wrote, compared with RocketMQ's own answers.

RocketMQ returns at most 64 records, counts in whole seconds, and returns every record of an equal hash: its clients
compare the keys. The rest of its answer has to be ours. Further hits of ours are explained by its cap, by its seconds,
or by a crash that cost its index records.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import OnCorrupt, QueueKey, ScanSpec, Snapshot
from segmentlog.store.find import Finder, Found, KeyField, Window
from segmentlog.store.format.consume_queue import EXTENSION_ADDRESS_MAX
from support import fixtures
from support.broker_index import BATCH_MAX
from support.indexed_stores import Stored, brute_force, every_record
from support.reading import ALL_COLUMNS, read
from support.scale import sample

pytestmark = pytest.mark.conformance

LOST = ("crash-", "cq-deleted", "index-deleted", "dledger-crash", "dledger-uncommitted", "dledger-truncated")
"""Fixtures of which RocketMQ lacks part of the index or of the log when it answers, or has a record indexed twice."""


def readable(path: Path, snapshot: Snapshot) -> list[Stored]:
    stop = snapshot.readable_stop()
    return [record for record in every_record(path) if record.physical_offset < stop]


def look(finder: Finder, question: dict[str, Any]) -> Found:
    window = Window(question["begin"], question["end"] + 1)
    return finder.by_keys([question["topic"]], [question["key"]], KeyField.EITHER, window=window)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the path of a store that is only read, unpacked once for all tests."""
    return functools.cache(lambda name: fixtures.unpack(name, tmp_path_factory.mktemp("store")))


@pytest.mark.scaled
@pytest.mark.parametrize("name", sample(fixtures.names(), 12))
def test_keys_are_found_as_rocketmq_finds_them(name: str, unpacked: Callable[[str], Path]) -> None:
    path = unpacked(name)
    snapshot = Snapshot.open(path)
    finder = Finder(snapshot)
    records = {record.physical_offset: record for record in readable(path, snapshot)}
    for question in sample(fixtures.queries(name, "messageByKey"), 12):
        topic, key, begin, end = (question[part] for part in ("topic", "key", "begin", "end"))
        ours = set(look(finder, question).physical_offset.tolist())
        expected = brute_force(records.values(), [(topic, key)], start_ms=begin, stop_ms=end + 1)
        assert ours == {offset for offset, _ in expected}

        answer = [offset for offset in question["answer"]["phyOffsets"] if offset in records]
        carrying = {offset for offset in answer if brute_force([records[offset]], [(topic, key)])}
        seconds = {offset for offset in carrying if records[offset].time_ms > end}
        assert carrying - ours == seconds
        assert all(records[offset].time_ms <= end + 999 for offset in seconds)
        if name.startswith(LOST) or len(question["answer"]["phyOffsets"]) >= min(question["maxNum"], BATCH_MAX):
            continue
        beyond = [records[offset].time_ms for offset in ours - carrying]
        assert all(begin <= time < begin + 1000 or end < max(r.time_ms for r in records.values()) for time in beyond)
        if begin == 0 and end >= max(record.time_ms for record in records.values()):
            assert not beyond


@pytest.mark.parametrize("name", fixtures.names())
def test_all_keys_at_once_are_found_as_one_at_a_time(name: str, unpacked: Callable[[str], Path]) -> None:
    path = unpacked(name)
    snapshot = Snapshot.open(path)
    records = readable(path, snapshot)
    topics = sorted({record.topic for record in records})
    keys = sorted({key for record in records for key in (*record.keys, *([record.unique] if record.unique else []))})
    found = Finder(snapshot).by_keys(topics, keys, KeyField.EITHER)
    asked = found.asked.to_pylist()
    pairs = sorted(
        (offset, asked[at]["key"])
        for offset, at in zip(found.physical_offset.tolist(), found.asked_index.tolist(), strict=True)
    )
    assert pairs == brute_force(records, [(topic, key) for topic in topics for key in keys])


def of_the_record(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what only its ConsumeQueue entry knows: burnt offsets, and addresses of extensions."""
    return {**row, "queueOffset": None, "tagsCode": None}


@pytest.mark.parametrize("name", fixtures.names())
def test_messages_are_found_by_their_places_and_ids_as_scanned(name: str, unpacked: Callable[[str], Path]) -> None:
    snapshot = Snapshot.open(unpacked(name))
    rows = [row for row in read(snapshot, on_corrupt=OnCorrupt.SKIP, check_crc=False) if row["msgId"] is not None]
    own = [row for row in rows if not row["topic"].startswith("%LMQ%")]
    finder = Finder(snapshot)
    spec = ScanSpec(columns=ALL_COLUMNS)

    def sorted_rows(found: Found) -> list[dict[str, Any]]:
        table = found.to_table(spec).drop_columns(["asked"])
        return sorted(table.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["physicalOffset"])

    expected = sorted(own, key=lambda row: row["physicalOffset"])
    places = [row["physicalOffset"] for row in expected]
    ids = [row["msgId"] for row in expected]
    for found in (finder.by_physical_offsets(places), finder.by_message_ids(ids)):
        assert list(map(of_the_record, sorted_rows(found))) == list(map(of_the_record, expected))
        codes = [(row["tagsCode"], other["tagsCode"]) for row, other in zip(sorted_rows(found), expected, strict=True)]
        assert all(ours == theirs or theirs <= EXTENSION_ADDRESS_MAX for ours, theirs in codes)
        assert not found.missing().num_rows
    for key in {QueueKey(row["topic"], row["queueId"]) for row in rows}:
        offsets = {row["queueOffset"]: row["physicalOffset"] for row in rows if key == (row["topic"], row["queueId"])}
        found = finder.by_queue_offsets(key, list(offsets))
        assert sorted(found.physical_offset.tolist()) == sorted(offsets.values())


def test_keys_of_a_store_with_its_index_in_rocksdb_are_found_in_its_log(unpacked: Callable[[str], Path]) -> None:
    name = "index-rocksdb-5.5.0"
    finder = Finder(Snapshot.open(unpacked(name)))
    keyed = [message for message in fixtures.expected(name).messages if message["keys"]]
    assert len(keyed) > 100
    for message in keyed[::10]:
        for key in message["keys"].split():
            assert message["phyOffset"] in finder.by_keys([message["topic"]], [key]).physical_offset
