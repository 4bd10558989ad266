"""Real RocketMQ opens what a `MessageStore` wrote: closed, crashed, crashed and recovered.

Its dump has to be what was put, field by field; its answers to key and time queries those of ours.
"""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.store import Boundary, Flush, MessageStore, QueueKey, Services, Snapshot, StoreConfig
from segmentlog.store.format.index_file import Geometry
from support import oracle, releases, writing
from support.broker_index import Index
from support.writing import Journal

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=1)]

CONFIGS = {
    "checksums": writing.SMALL,
    "bare": dataclasses.replace(
        writing.SMALL, record_crc=False, store_host="[fd00::9]:10911", compress_over_bytes=500, flush=Flush.ASYNC
    ),
    "no-index": dataclasses.replace(writing.SMALL, index=False, services=Services.ON_CALL),
}
ON_CALL = dataclasses.replace(writing.SMALL, services=Services.ON_CALL, flush=Flush.ASYNC)


@pytest.fixture(params=releases.STORES)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _filled(path: Path, config: StoreConfig, version: str) -> Journal:
    journal = Journal(config)
    with MessageStore.open(path, config, clock=writing.clock()) as store:
        journal.append(store, writing.every_kind(long_topics=releases.LONG_TOPICS.holds(version)))
        journal.append_batch(store, writing.every_kind(long_topics=releases.LONG_TOPICS.holds(version), seed=1))
        journal.append_batch(store, writing.plain(150))
    with MessageStore.open(path, config, clock=writing.clock(1_700_001_000_000)) as store:
        assert store.recovered.was_clean
        journal.append_batch(store, writing.plain(40, seed=2, body_bytes=2_000))
        journal.append(store, writing.plain(10, seed=3))
    return journal


@pytest.mark.parametrize("which", CONFIGS)
def test_rocketmq_reads_appended_messages(tmp_path: Path, version: str, which: str) -> None:
    config = CONFIGS[which]
    journal = _filled(tmp_path / "store", config, version)
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) >= 3
    assert len(list((tmp_path / "store" / "consumequeue" / "Plain" / "0").iterdir())) > 3
    assert (len(list((tmp_path / "store" / "index").iterdir())) > 3) == config.index
    writing.check_dump(oracle.dump(tmp_path / "store", writing.broker_config(config), version), journal)
    writing.check_reader(tmp_path / "store", journal)


def _key_questions(journal: Journal) -> Iterator[oracle.Line]:
    keys = journal.all_keys()
    times = sorted({put.store_timestamp for put in journal.puts})
    first, middle, last = times[0], times[len(times) // 2], times[-1]
    windows = [(0, last + 1_000_000), (middle, last), (first, middle), (middle - 2_000, middle + 2_000), (last, last)]
    for number, (topic, key) in enumerate([*keys, ("Plain", "nothing"), ("Nowhere", "k2-1")]):
        # All of them in all time, and some windows of each.
        for begin, end in (windows[0], windows[1 + number % (len(windows) - 1)]):
            yield {
                "query": "messageByKey",
                "topic": topic,
                "key": key,
                "maxNum": (64, 64, 3)[number % 3],
                "begin": begin,
                "end": end,
            }


def _time_questions(journal: Journal) -> Iterator[oracle.Line]:
    times: dict[tuple[str, int], list[int]] = {}
    for put in journal.puts:
        if put.is_queued:
            known = writing.row(put, journal.config)
            times.setdefault((known["topic"], known["queueId"]), []).append(put.store_timestamp)
    for (topic, queue_id), stamps in times.items():
        for stamp in sorted({stamps[0], stamps[len(stamps) // 2], stamps[-1]}):
            for time in (stamp - 1, stamp, stamp + 1):
                for boundary in Boundary:
                    yield {
                        "query": "offsetByTime",
                        "topic": topic,
                        "queueId": queue_id,
                        "time": time,
                        "boundary": boundary.value.upper(),
                    }


def _check_answers(store: Path, journal: Journal, version: str) -> None:
    config = journal.config
    questions = list(_key_questions(journal))
    if releases.BOUNDARY.holds(version):
        questions += _time_questions(journal)
    index = Index(str(store / "index"), Geometry(config.index_slots, config.index_entries))
    snapshot = Snapshot.open(store)
    found = 0
    for line in oracle.query(store, writing.broker_config(config), version, questions):
        if line["query"] == "messageByKey":
            ours = index.query(line["topic"], line["key"], line["maxNum"], line["begin"], line["end"])
            found += len(ours)
            assert ours == line["answer"]["phyOffsets"], line
        else:
            key = QueueKey(line["topic"], line["queueId"])
            assert snapshot.offset_at(key, line["time"], Boundary(line["boundary"].lower())) == line["answer"], line
    assert found > len(journal.all_keys())


def test_queries_of_rocketmq_answer_as_ours(tmp_path: Path, version: str) -> None:
    journal = _filled(tmp_path / "store", writing.SMALL, version)
    _check_answers(tmp_path / "store", journal, version)


# -- crash states


def _parts(store: Path, to: Path, *, old: Path, parts: tuple[str, ...]) -> Path:
    """Copy a store with some of its parts as they were earlier."""
    writing.copied(store, to)
    for part in parts:
        if (to / part).is_dir():
            shutil.rmtree(to / part)
        else:
            (to / part).unlink(missing_ok=True)
        if (old / part).exists():
            writing.copied(old / part, to / part)
    return to


QUEUES = ("consumequeue", "index")
POINTS = ("checkpoint", ".segmentlog")
STATES = {
    # What of the earlier copy is in the crashed store: the rest is of the moment of the crash.
    "all-there": (),
    "queues-of-the-middle": (*QUEUES, *POINTS),
    "queues-and-log-apart": ("commitlog", *POINTS),
    "index-of-the-middle": ("index", *POINTS),
}


@pytest.fixture
def crashed(tmp_path: Path, version: str, state: str) -> tuple[Path, Journal]:
    """A store as a crash leaves it, with what its log holds."""
    store, config = tmp_path / "store", ON_CALL
    journal = Journal(config)
    with MessageStore.open(store, config, clock=writing.clock()) as first:
        journal.append(first, writing.every_kind(long_topics=releases.LONG_TOPICS.holds(version)))
        journal.append_batch(first, writing.plain(60))
    second = MessageStore.open(store, config, clock=writing.clock(1_700_000_200_000))
    journal.append_batch(second, writing.plain(30, seed=2, body_bytes=2_000))
    journal.append(second, writing.every_kind(long_topics=releases.LONG_TOPICS.holds(version), seed=3)[:10])
    second.flush()
    second.wait_dispatched()
    middle, end = writing.copied(store, tmp_path / "middle"), second.end_offset
    journal.append_batch(second, writing.plain(50, seed=4, body_bytes=2_500))
    journal.append(second, writing.plain(7, topic="Fresh", seed=5))
    second.wait_dispatched()
    left = _parts(store, tmp_path / "crashed", old=middle, parts=STATES[state])
    second.close()
    assert (left / "abort").exists()
    return left, journal.until(end) if "commitlog" in STATES[state] else journal


@pytest.mark.parametrize("state", STATES)
def test_rocketmq_recovers_our_crashed_store(crashed: tuple[Path, Journal], version: str) -> None:
    store, journal = crashed
    writing.check_dump(oracle.dump(store, writing.broker_config(journal.config), version), journal)


@pytest.mark.parametrize("state", STATES)
def test_rocketmq_reads_a_store_that_we_recovered(crashed: tuple[Path, Journal], version: str) -> None:
    store, journal = crashed
    with MessageStore.open(store, journal.config, clock=writing.clock(1_700_009_000_000)) as again:
        assert not again.recovered.was_clean
        journal.append(again, writing.plain(5, topic="Fresh", seed=6))
        journal.append_batch(again, writing.plain(20, seed=7))
    assert not (store / "abort").exists()
    writing.check_dump(oracle.dump(store, writing.broker_config(journal.config), version), journal)
    writing.check_reader(store, journal)
    _check_answers(store, journal, version)


# -- queues that begin above zero


@pytest.mark.parametrize("queues", ["kept", "rebuilt"])
def test_queues_that_begin_above_zero(tmp_path: Path, version: str, queues: str) -> None:
    """Retention took the first segments; the queues lost their first files, or all and are written again with pads."""
    store, config = tmp_path / "store", writing.SMALL
    journal = Journal(config)
    with MessageStore.open(store, config) as first:
        journal.append_batch(first, writing.plain(200, seed=1, queues=2, body_bytes=1_500))
    segments = sorted((store / "commitlog").iterdir())
    assert len(segments) > 4
    for segment in segments[:2]:
        segment.unlink()
    journal = journal.since(int(segments[2].name))
    if queues == "kept":
        for key, offsets in journal.queues().items():
            for file in sorted((store / "consumequeue" / key[0] / str(key[1])).iterdir()):
                if int(file.name) // 20 + config.queue_segment_entries <= offsets[0]:
                    file.unlink()
    else:
        for name in ("consumequeue", "index", ".segmentlog"):
            shutil.rmtree(store / name)
    with MessageStore.open(store, config) as second:
        for (topic, queue_id), offsets in journal.queues().items():
            assert offsets[0] > 16
            bounds = second.bounds(QueueKey(topic, queue_id))
            assert (bounds.min_offset, bounds.max_offset) == (offsets[0], offsets[-1] + 1)
        journal.append_batch(second, writing.plain(40, seed=2, queues=3))
    writing.check_dump(oracle.dump(store, writing.broker_config(config), version), journal)
    writing.check_reader(store, journal)


@pytest.mark.scaled(quick=0)  # `crash/test_store_crashes.py` adds such segments in a quick run
def test_a_last_segment_of_0_bytes(tmp_path: Path, version: str) -> None:
    config = CONFIGS["checksums"]
    journal = _filled(tmp_path / "store", config, version)
    log = tmp_path / "store" / "commitlog"
    (log / f"{len(list(log.iterdir())) * config.segment_bytes:020d}").touch()
    (tmp_path / "store" / "abort").touch()
    writing.check_reader(tmp_path / "store", journal)
    if releases.EMPTY_SEGMENT.holds(version):
        writing.check_dump(oracle.dump(tmp_path / "store", writing.broker_config(config), version), journal)
    MessageStore.open(tmp_path / "store", config, clock=writing.clock(1_700_002_000_000)).close()
    writing.check_dump(oracle.dump(tmp_path / "store", writing.broker_config(config), version), journal)
