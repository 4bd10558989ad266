"""Queries by key: the newest records that carry the key, and none that only share its hash."""

from pathlib import Path

import pytest

from segmentlog.store import BatchId, MessageStore, Outgoing, StoreReader
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.index.reader import Index
from segmentlog.store.read.key_query import query_key
from segmentlog.store.sink import Staging
from support.batches import batch_of
from support.indexed_stores import Row, brute_force, build, colliding, every_record, write_index
from support.tampering import overwrite
from support.written_stores import SMALL

GEOMETRY = Geometry(7, 4000)
KEY = "order-7"
OTHER = colliding(KEY)


def ask(path: Path, topic: str, key: str, max_num: int = 64) -> list[int]:
    return query_key(StoreReader.open(path), Index.open(path / "index", GEOMETRY), topic, key, max_num)


def a_store(path: Path, rows: list[Row]) -> list[int]:
    build(path, rows, segment_bytes=4096)
    write_index(path, GEOMETRY)
    return [record.physical_offset for record in every_record(path)]


def test_a_record_of_an_equal_hash_is_no_hit(tmp_path: Path) -> None:
    rows = [Row("T", keys=(KEY, OTHER)[i % 2], unique=f"u{i}") for i in range(30)]
    places = a_store(tmp_path / "s", rows)
    assert Index.open(tmp_path / "s" / "index", GEOMETRY).query("T", KEY) == places  # the index cannot tell
    assert ask(tmp_path / "s", "T", KEY) == places[::2]
    assert ask(tmp_path / "s", "T", OTHER) == places[1::2]


def test_the_topic_is_compared_too(tmp_path: Path) -> None:
    topic = "Orders"
    places = a_store(tmp_path / "s", [Row(topic, KEY), Row(colliding(topic), KEY), Row(topic, unique=KEY)])
    assert ask(tmp_path / "s", topic, KEY) == [places[0], places[2]]
    assert ask(tmp_path / "s", colliding(topic), KEY) == [places[1]]


@pytest.mark.parametrize("max_num", [0, 1, 2, 5, 10, 11, 1000])
def test_collisions_do_not_take_the_place_of_hits(tmp_path: Path, max_num: int) -> None:
    rows = [Row("T", KEY)] * 10 + [Row("T", OTHER)] * 100
    places = a_store(tmp_path / "s", rows)[:10]
    assert ask(tmp_path / "s", "T", KEY, max_num) == places[max(10 - max_num, 0) :]


def test_a_record_that_has_the_key_twice_is_one_hit(tmp_path: Path) -> None:
    places = a_store(tmp_path / "s", [Row("T", f"{KEY} {KEY}", unique=KEY)] * 3)
    assert ask(tmp_path / "s", "T", KEY, 2) == places[1:]
    assert ask(tmp_path / "s", "T", KEY) == places


@pytest.mark.slow
def test_answers_are_those_of_comparing_every_record(tmp_path: Path) -> None:
    rows = [Row("AB"[i % 2], f"k{i % 9} {colliding(f'kk{i % 5}')}", unique=f"kk{i % 7}") for i in range(300)]
    a_store(tmp_path / "s", rows)
    stored = every_record(tmp_path / "s")
    for topic in "AB":
        for key in [*(f"k{i}" for i in range(10)), *(f"kk{i}" for i in range(8)), colliding("kk3")]:
            expected = [offset for offset, _ in brute_force(stored, [(topic, key)])]
            assert ask(tmp_path / "s", topic, key, 1000) == expected


def test_deleted_and_damaged_records_are_left_out(tmp_path: Path) -> None:
    places = a_store(tmp_path / "s", [Row("T", KEY, body_bytes=900)] * 12)
    overwrite(tmp_path / "s", places[9] + 4, b"\0\0\0\0")
    first = min((tmp_path / "s" / "commitlog").iterdir())
    first.unlink()
    kept = [place for place in places if place >= 4096 and place != places[9]]
    assert ask(tmp_path / "s", "T", KEY) == kept != places


def test_a_batch_in_flight_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    message = Outgoing(topic="T", body=b"", keys=KEY)
    with MessageStore.open(path, SMALL) as store:
        before = store.append(message).physical_offset
        with Staging.open(path, "job", 0, "a", SMALL) as staging:
            staging.add(batch_of([message] * 3))
            staged = staging.finish()
        seen: list[list[int]] = []
        real = store._parts.publication.publish

        def publish(batch_id: BatchId, stop: int) -> None:
            store._housekeeping.dispatch(at_once=True)
            seen.append(store.query("T", KEY))
            real(batch_id, stop)

        monkeypatch.setattr(store._parts.publication, "publish", publish)
        committed = store.commit_batch(BatchId("q", 0), [staged])
        assert seen == [[before]]
        assert store.query("T", KEY)[:2] == [before, committed.start]
        assert len(store.query("T", KEY)) == 4
