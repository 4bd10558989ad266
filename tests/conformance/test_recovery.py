"""Every store that real RocketMQ wrote, crashed ones too, opened for writing.

Afterwards it has the messages that RocketMQ has after it opened the same store (``expected.jsonl``), and those that
RocketMQ loses. Opening it again changes nothing, and it accepts appends.
"""

from pathlib import Path

import pytest

from segmentlog.store import (
    DamagedLogError,
    Flush,
    MessageStore,
    OnCorrupt,
    OnDamage,
    Outgoing,
    QueueKey,
    Services,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.format.hashing import java_hash
from support import fixtures, oracle, reading, writing
from support.conformance import Difference

pytestmark = pytest.mark.conformance

NAMES = [name for name in fixtures.names() if name not in {*fixtures.in_rocksdb(), *fixtures.dledger()}]
CRASHED = [name for name in NAMES if name.startswith("crash-")]
DAMAGED = ["crash-middle-4.9.1", "crash-middle-5.3.3"]
SAMPLE = [
    "basic-4.9.1",
    "batch-5.3.3",
    "crash-garbage-4.9.1",
    "crash-clean-5.3.3",
    "retention-5.3.3",
    "time-5.1.0",
]

_FORGOTTEN_DELETED = "5.1.0 forgets all messages when consumequeue/ is gone"
_FORGOTTEN_EARLIER = "RocketMQ begins recovery in a later segment and forgets what lies before"
_FORGOTTEN_QUEUE = "RocketMQ dispatches only what lies beyond the other queues' ends: the deleted queue stays lost"
_GONE = "4.9.1 keeps minimum 0 of a queue whose messages retention deleted, and reads a stray record through it"

MORE = {
    "cq-deleted-5.1.0": Difference(_FORGOTTEN_DELETED, more=250),
    "crash-cq-deleted-4.9.1": Difference(_FORGOTTEN_EARLIER, more=56),
    "crash-cq-deleted-5.3.3": Difference(_FORGOTTEN_EARLIER, more=56, min_offsets=True),
    "cq-partial-4.9.1": Difference(_FORGOTTEN_QUEUE, more=37),
    "cq-partial-5.3.3": Difference(_FORGOTTEN_QUEUE, more=37),
    "retention-4.9.1": Difference(_GONE, min_offsets=True),
}
"""Messages that our store has beyond RocketMQ's, and the reasons."""


def _config(name: str) -> StoreConfig:
    broker = fixtures.config(name)
    return writing.store_config(
        broker,
        record_crc=bool(broker.get("enabledAppendPropCRC", False)),
        flush=Flush.ASYNC,
        services=Services.ON_CALL,
    )


def _open(store: Path, name: str) -> MessageStore:
    on_damage = OnDamage.CUT if name in DAMAGED else OnDamage.REFUSE
    return MessageStore.open(store, _config(name), on_damage=on_damage)


def _check_expected(name: str, store: Path, appended: writing.Journal | None = None) -> None:
    """Assert that the store holds what RocketMQ reads from it, what it forgets, and what was appended."""
    difference = MORE.get(name, Difference(""))
    ours = {put.physical_offset for put in appended.puts} if appended else set()
    found = {}
    snapshot = Snapshot.open(store)
    for key, rows in reading.by_queue(reading.read(snapshot, on_corrupt=OnCorrupt.FAIL)).items():
        bounds = snapshot.bounds(key)
        assert [row["queueOffset"] for row in rows] == list(range(bounds.min_offset, bounds.max_offset)), key
        found.update({(row["topic"], row["physicalOffset"]): reading.described(row) for row in rows})
    assert ours <= {offset for _, offset in found}
    expected = {(m["topic"], m["phyOffset"]): m for m in fixtures.expected(name).messages if "error" not in m}
    assert expected.keys() <= found.keys()
    for place, message in expected.items():
        wanted = reading.expected_row(message)
        if name == "cq-ext-4.9.1" and found[place]["cqTagsCode"] != wanted["cqTagsCode"]:
            # Taking the store over puts the hash itself where an address in consumequeue_ext/ was.
            wanted["cqTagsCode"] = java_hash(message["tags"] or "")
        assert found[place] == wanted
    more = {place for place in found.keys() - expected.keys() if place[1] not in ours}
    assert len(more) == difference.more, difference.why
    for queue in fixtures.expected(name).queues:
        bounds = snapshot.bounds(QueueKey(queue["topic"], queue["queueId"]))
        if not difference.more and not appended:
            assert bounds.max_offset == queue["maxOffset"]
        if not difference.more and not difference.min_offsets:
            assert bounds.min_offset == queue["minOffset"]


def _three(name: str) -> list[Outgoing]:
    """Two messages for a queue that is there, if any is, and one for a new topic."""
    found = [queue for queue in fixtures.expected(name).queues if not queue["topic"].startswith("%LMQ%")]
    queues = found or [{"topic": "First", "queueId": 0}]
    topic, queue_id = queues[0]["topic"], queues[0]["queueId"]
    known = {"topic": topic, "queue_id": queue_id, "born_timestamp": 1}
    return [
        Outgoing(body=b"one more", tags="tagA", keys="k1 k2", **known),
        Outgoing(topic="Brand-new", body=b"of a new topic", born_timestamp=2, uniq_key="U" * 32),
        Outgoing(body=b"and one more", **known),
    ]


@pytest.mark.scaled(quick=12)
@pytest.mark.parametrize("name", NAMES)
def test_an_opened_store_equals_the_store_that_rocketmq_recovers(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    with _open(store, name) as opened:
        recovered = opened.recovered
    assert recovered.adopted
    assert recovered.was_clean == (name not in CRASHED)
    assert (recovered.cut_records > 0) == (name in DAMAGED)
    segments = fixtures.expected(name).segments
    if segments:
        last = segments[-1]
        end = last["phyOffset"] + sum(last["records"])
        assert (
            recovered.log_end in {end, last["phyOffset"] + fixtures.config(name)["mappedFileSizeCommitLog"]}
            if (last.get("blank"))
            else recovered.log_end == end
        )
    _check_expected(name, store)


@pytest.mark.scaled(quick=12)
@pytest.mark.parametrize("name", [name for name in fixtures.kinds() if name in NAMES])
def test_opening_again_changes_nothing(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    with _open(store, name):
        crashed = writing.copied(store, tmp_path / "crashed")  # right after recovery
    before = writing.tree(store)
    with MessageStore.open(store, _config(name)) as opened:
        assert opened.recovered.was_clean
        assert (opened.recovered.cut_bytes, opened.recovered.cut_records, opened.recovered.corrected) == (0, 0, 0)
    assert _without_durable(writing.tree(store)) == _without_durable(before)

    with MessageStore.open(crashed, _config(name)) as opened:
        assert not opened.recovered.was_clean
        assert (opened.recovered.cut_bytes, opened.recovered.cut_records, opened.recovered.corrected) == (0, 0, 0)
    assert _without_index(_without_durable(writing.tree(crashed))) == _without_index(_without_durable(before))


def _without_durable(tree: dict[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    return {path: seen for path, seen in tree.items() if path not in {".segmentlog/durable", "abort"}}


def _without_index(tree: dict[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    # Index files are named by the time they are made at, and the two stores were made apart.
    return {path: seen for path, seen in tree.items() if not path.startswith("index/")}


@pytest.mark.scaled(quick=12)
@pytest.mark.parametrize("name", NAMES)
def test_an_opened_store_is_written_on(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    journal = writing.Journal(_config(name))
    with _open(store, name) as opened:
        journal.append(opened, _three(name))
    _check_expected(name, store, journal)
    with MessageStore.open(store, _config(name)) as opened:
        journal.append_batch(opened, _three(name))
    _check_expected(name, store, journal)
    counted = journal.queues()
    snapshot = Snapshot.open(store)
    for (topic, queue_id), offsets in counted.items():
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert snapshot.bounds(QueueKey(topic, queue_id)).max_offset == offsets[-1] + 1


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_in_the_middle_is_refused(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    before = writing.tree(store)
    with pytest.raises(DamagedLogError, match="39 whole records") as caught:
        MessageStore.open(store, _config(name))
    assert writing.tree(store) == before
    last = fixtures.expected(name).segments[-1]
    assert caught.value.offset == last["phyOffset"] + sum(last["records"])
    assert caught.value.path is not None
    assert Path(caught.value.path).is_relative_to(store / "commitlog")


@pytest.mark.scaled(quick=1)
@pytest.mark.interop
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
@pytest.mark.parametrize("name", SAMPLE)
def test_rocketmq_reads_an_opened_store(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    journal = writing.Journal(_config(name))
    with _open(store, name) as opened:
        journal.append(opened, _three(name))
    ours = {put.physical_offset for put in journal.puts}
    shown = oracle.dump(store, fixtures.config(name), fixtures.about(name)["rocketmq"])
    messages = [line for line in shown if line["type"] in {"message", "record"}]
    theirs = [line for line in messages if line["phyOffset"] not in ours]
    expected = [line for line in fixtures.expected(name) if line["type"] in {"message", "record"}]
    assert theirs == expected
    found = {line["phyOffset"]: reading.expected_row(line) for line in messages if line["phyOffset"] in ours}
    for wanted in journal.rows():
        assert found[wanted["phyOffset"]] | {"bodyCRC": 0} == wanted | {"bodyCRC": 0}
