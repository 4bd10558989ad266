"""RocketMQ and we write one store, turn about; either ends its turns by closing the store, or by crashing.

After every turn all messages are there once, in queues without holes. At the end every field of each is compared,
through RocketMQ and through our reader.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import Flush, MessageStore, Outgoing, QueueKey
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.write.housekeeping import BackgroundServices
from support import oracle, releases, writing
from support.broker_index import Index
from support.scale import scale
from support.writing import Journal

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=1)]

ROUNDS = scale(3, 10, 10)  # the last is one of OURS_CRASHED
CONFIG = writing.SMALL
OURS_CRASHED = (1, 2, 6, 9)  # after these rounds the store that RocketMQ gets was not closed by us
THEIRS_CLOSED = (1, 3, 7)  # a clean end of RocketMQ takes it four seconds


def _theirs(number: int, *, long_topics: bool) -> list[Outgoing]:
    """Messages that RocketMQ puts in a round: all kinds that it returns unchanged."""
    many = writing.plain(40, seed=100 + number, body_bytes=300)
    kinds = [
        message
        for message in writing.every_kind(long_topics=long_topics, seed=100 + number)
        if writing.RECORD_CRC not in message.properties
        and message.properties.get("DELAY") != "0"
        # The oracle stands for the broker here, and delays whatever it is told to.
        and not ("DELAY" in message.properties and message.sys_flag & writing.ROLLBACK == writing.PREPARED)
    ]
    return [*many, *kinds] if number % 3 == 1 else many


def _turn_of_rocketmq(store: Path, journal: Journal, version: str, number: int, *, long_topics: bool) -> None:
    messages = _theirs(number, long_topics=long_topics)
    # Without --no-schedule 4.9.1 would deliver the delayed messages meanwhile.
    options = ["--no-schedule"] + ([] if number in THEIRS_CLOSED else ["--crash"])
    config = writing.broker_config(CONFIG)
    journal.note(messages, oracle.write(store, config, version, [writing.planned(m) for m in messages], *options))


def _turn_of_ours(store: Path, journal: Journal, number: int, *, long_topics: bool) -> None:
    with MessageStore.open(store, CONFIG) as ours:
        assert ours.recovered.was_clean == (number in THEIRS_CLOSED)
        assert ours.recovered.cut_records == 0
        for (topic, queue_id), offsets in journal.queues().items():
            assert offsets == list(range(len(offsets))), (topic, queue_id)
            bounds = ours.bounds(QueueKey(topic, queue_id))
            assert (bounds.min_offset, bounds.max_offset) == (0, len(offsets)), (topic, queue_id)
        journal.append(ours, writing.plain(5, seed=number, topic=f"Round{number % 4}"))
        journal.append_batch(ours, writing.plain(30, seed=50 + number))
        if number % 4 == 0:
            journal.append_batch(ours, writing.every_kind(long_topics=long_topics, seed=number))
        if number in OURS_CRASHED:
            ours.wait_dispatched()
            writing.copied(store, store.with_name("crashed"))
    if number in OURS_CRASHED:
        shutil.rmtree(store)
        store.with_name("crashed").rename(store)


TURNS = [(releases.NEWEST,), ("4.9.1", "5.1.0", "5.3.3", releases.NEWEST), ("5.5.0", "5.3.3")]


@pytest.mark.scaled(quick=0)  # the tests below in turn, and again
@pytest.mark.parametrize("versions", scale(TURNS, TURNS, [*TURNS, ("4.9.1",), ("5.3.3",)]), ids="-".join)
def test_a_broker_and_we_append_by_turns(tmp_path: Path, versions: tuple[str, ...]) -> None:
    long_topics = all(map(releases.LONG_TOPICS.holds, versions))
    store, journal = tmp_path / "store", Journal(CONFIG)
    for number in range(ROUNDS):
        _turn_of_rocketmq(store, journal, versions[number % len(versions)], number, long_topics=long_topics)
        _turn_of_ours(store, journal, number, long_topics=long_topics)
    version = versions[ROUNDS % len(versions)]
    writing.check_dump(oracle.dump(store, writing.broker_config(CONFIG), version), journal)

    with MessageStore.open(store, CONFIG) as last:
        assert not last.recovered.was_clean
        journal.append(last, writing.plain(3, seed=999))
    writing.check_dump(oracle.dump(store, writing.broker_config(CONFIG), version), journal)
    writing.check_reader(store, journal)
    index = Index(str(store / "index"), Geometry(CONFIG.index_slots, CONFIG.index_entries))
    questions = [
        {"query": "messageByKey", "topic": topic, "key": key, "maxNum": 64, "begin": 0, "end": 1 << 42}
        for topic, key in journal.all_keys()
    ]
    for line in oracle.query(store, writing.broker_config(CONFIG), version, questions):
        ours_found = index.query(line["topic"], line["key"], line["maxNum"], line["begin"], line["end"])
        assert ours_found == line["answer"]["phyOffsets"], line


@pytest.mark.parametrize("version", releases.STORES)
@pytest.mark.parametrize("ours_end", ["closed", "crashed"])
def test_a_broker_that_crashes_on_a_store_of_ours(tmp_path: Path, version: str, ours_end: str) -> None:
    """Its messages were acknowledged, and are whole: nothing of them may be cut, whatever process left ``abort``."""
    store, journal = tmp_path / "store", Journal(CONFIG)
    with MessageStore.open(store, CONFIG) as ours:
        journal.append_batch(ours, writing.plain(10, seed=1))
        ours.wait_dispatched()
        crashed = writing.copied(store, tmp_path / "crashed")
    store = store if ours_end == "closed" else crashed
    theirs = writing.plain(10, seed=2)
    plan = [writing.planned(message) for message in theirs]
    journal.note(theirs, oracle.write(store, writing.broker_config(CONFIG), version, plan, "--crash"))
    with MessageStore.open(store, CONFIG) as ours:
        assert (ours.recovered.cut_bytes, ours.recovered.cut_records) == (0, 0)
        journal.append_batch(ours, writing.plain(10, seed=3))
    writing.check_reader(store, journal)


@pytest.mark.parametrize("version", [releases.NEWEST, "5.4.0"])
def test_a_broker_recovers_all_queues_of_a_log_with_many_segments(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since 5.4 it goes back ten segments at most, and this log has many more."""
    monkeypatch.setattr(BackgroundServices, "after_put", lambda _: None)  # a dispatching thread that comes to nothing
    store, journal = tmp_path / "store", Journal(CONFIG)
    with MessageStore.open(store, replace(CONFIG, flush=Flush.ASYNC)) as ours:
        for number in range(60):
            journal.append_batch(ours, writing.plain(100, seed=number, topic=f"Round{number % 20}", queues=8))
        crashed = writing.copied(store, tmp_path / "crashed")
    assert len(list((crashed / "commitlog").iterdir())) > 30
    writing.check_dump(oracle.dump(crashed, writing.broker_config(CONFIG), version), journal)
