"""Mutated documents: manifests, a store's own state, a broker's JSON. The reader has a value or an error of ours.

::

    document ──► mutated ──► read ──► no other error, 5 s of CPU at most, no swollen memory
                 (CRCs are zero on both sides: checksums stop chance, not an attacker)

Answers of brokers and schemas of bodies are mutated by the tests of their readers, with the same `mutated_bytes`.
"""

import random
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from segmentlog.store import StoreReader
from segmentlog.store.archive.look import describe, verify
from segmentlog.store.archive.push import push
from segmentlog.store.directory.delay_progress import delay_progress
from segmentlog.store.directory.group_offsets import read_progress
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.directory.own_state import OwnState, store_id
from segmentlog.store.directory.retention_history import deletions
from segmentlog.store.directory.topics import topic_table
from segmentlog.store.format import (
    batch_history,
    batch_mark,
    checkpoint,
    confirmation,
    documents,
    durable_point,
    epochs,
    ledger,
)
from segmentlog.store.format.archive_manifest import Manifest, manifest_key
from segmentlog.store.format.batch_history import BatchHistory
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.broker_config import client_offsets, consumer_offsets, parse_properties
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.format.ledger import Batch, Ledger, LedgerEntry, QueueSpan
from segmentlog.store.objects.manifests import newest
from support.crash.memory_fs import MemoryFileSystem
from support.memory_objects import MemoryObjects
from support.mutated_bytes import judged, mutated, odd_number, odd_text
from support.scale import Report, scale
from support.small_store import write_small_store

pytestmark = [pytest.mark.attack, pytest.mark.scaled, pytest.mark.timeout(scale(120, 1800, 36_000))]
MUTATIONS: Final = scale(300, 10_000, 200_000)
ROOT: Final = "/store"
ENTRY: Final = LedgerEntry(41, 17, 0, 1048, 10, 900, 123)
LEDGER: Final = Ledger().with_entry("größe", ENTRY, (QueueSpan("orders", 0, 0, 9, 10),))
HISTORY: Final = BatchHistory((Batch("a", ENTRY), Batch(None, ENTRY._replace(sequence=18, start=1048, stop=2000))))
TOPICS: Final = (
    b'{"dataVersion":{"counter":1},"topicConfigTable":{"orders":{"perm":6,"writeQueueNums":8,"order":false}}}'
)
OFFSETS: Final = b'{"dataVersion":{"counter":2},"offsetTable":{"orders@billing":{0:12,"1":30},"a@b":{}}}'
CLIENT: Final = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:7,},}'
SIDECAR: Final = b'{"offsetTable":{"a@b":{"0":1}},"seenTable":{},"broadcastTable":{"g":{"c":{"a@b":{"0":5}}}}}'
DELETIONS: Final = (
    b'{"ms": 1763700000000, "file": "commitlog/00000000000000000000", "bytes": 9, "reason": "expired"}\n' * 2
)
Read = Callable[[bytes], object]


def in_store(name: str, read: Callable[[MemoryFileSystem], object]) -> Read:
    """Read a document as a file of a store."""
    return lambda data: read(MemoryFileSystem.of({f"{ROOT}/{name}": data}))


def rendered(data: bytes) -> object:
    """Parse JSON, write it and parse it again."""
    found = documents.load(data, None).document
    text = documents.render(found)
    assert documents.render(documents.parse(text)) == text
    return found


def sealed() -> dict[str, tuple[bytes, Read]]:
    """Documents that end in a CRC, and their readers."""
    point = durable_point.DurablePoint(
        sequence=3, log=4096, queues=2048, entries=12, sizes=durable_point.FileSizes(1, 2)
    )
    mark = BatchMark(5, 100, 200, in_flight=False, before=(10, 20))
    history = Epochs((Epoch(1, 0, 7), Epoch(3, 4096, 8)))
    return {
        "ledger": (ledger.encode(LEDGER), lambda data: ledger.decode(data, "ledger")),
        "batches": (
            batch_history.encode_lines(HISTORY),
            lambda data: batch_history.decode_lines(data, "batches", BatchHistory()),
        ),
        "batch mark": (batch_mark.encode(mark), lambda data: batch_mark.decode(data, "batch")),
        "epochs": (epochs.encode(history), epochs.decode),
        "superseded": (epochs.encode_superseded(9), epochs.decode_superseded),
        "durable": (durable_point.encode(point).ljust(8192, b"\0"), durable_point.decode),
        "confirmed": (confirmation.encode(confirmation.Confirmation(1, 2, 3, 4)), confirmation.decode),
    }


def plain() -> dict[str, tuple[bytes, Read]]:
    """Documents without a checksum, and their readers."""
    return {
        "JSON": (SIDECAR, rendered),
        "topics": (TOPICS, in_store("config/topics.json", lambda fs: topic_table(StoreLocation(fs, ROOT)))),
        "offsets": (OFFSETS, in_store("config/consumerOffset.json", lambda fs: read_progress(fs, ROOT))),
        "positions": (SIDECAR, in_store(".segmentlog/groups.json", lambda fs: read_progress(fs, ROOT))),
        "delays": (OFFSETS, in_store("config/delayOffset.json", lambda fs: delay_progress(fs, ROOT))),
        "deletions": (
            DELETIONS,
            in_store(".segmentlog/retention-history", lambda fs: [each.log_base for each in deletions(fs, ROOT)]),
        ),
        "store id": (
            b"9f86d081884c7d659a2feaa0c55ad015\n",
            in_store(".segmentlog/id", lambda fs: store_id(ROOT, fs)),
        ),
        "own state": (bytes(4096), in_store("checkpoint", lambda fs: OwnState.read(fs, ROOT, is_signed=True))),
        "checkpoint": (bytes(range(48)), checkpoint.decode),
        "client offsets": (CLIENT, lambda data: client_offsets(documents.load(data, None).document)),
        "group offsets": (OFFSETS, lambda data: consumer_offsets(documents.load(data, None).document)),
        "broker.conf": (
            b"brokerName=a\nflushDiskType = ASYNC_FLUSH\n#x\npath=/data\\\n  /b\\u0041\n",
            lambda data: parse_properties(data.decode("utf-8", "replace")),
        ),
    }


@pytest.mark.parametrize("name", [*sealed(), *plain()])
def test_a_mutated_document_is_read_or_refused(name: str, monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    if name in sealed():
        monkeypatch.setattr(zlib, "crc32", lambda *_: 0)
    document, read = {**sealed(), **plain()}[name]
    assert judged(read, document) is not None
    refused = 0
    for seed in range(MUTATIONS):
        data = mutated(document, random.Random(seed))
        try:
            refused += judged(read, data) is None
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}: {data[:300]!r}") from error
    report(f"mutations of {name}", {"refused": refused, "read": MUTATIONS - refused})


# Manifests


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> MemoryObjects:
    objects = MemoryObjects()
    push(write_small_store(tmp_path_factory.mktemp("archive") / "store"), objects)
    return objects


def with_odd_value(manifest: Manifest, draw: random.Random) -> Manifest:
    """Return a manifest of which one name or number is another one."""
    part = draw.choice(["pieces", "runs", "queues", "files", "store", "order"])
    if part == "runs":
        runs = manifest.runs.copy()
        name, row = draw.choice(runs.dtype.names or ()), draw.randrange(runs.size)
        bits = 8 * runs.dtype[name].itemsize
        value = odd_number(draw, int(runs[name][row]))
        runs[name][row] = value if bits == 64 else (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        return replace(manifest, runs=runs)
    if part == "store":
        return replace(manifest, store={**manifest.store, draw.choice(list(manifest.store)): odd_text(draw)})
    if part == "order":
        name = draw.choice(["pieces", "queues", "files", "runs"])
        rows = getattr(manifest, name)
        return replace(manifest, **{name: draw.choice([rows[::-1], rows[1:], rows[:-1], rows[:0]])})
    rows = list(getattr(manifest, part))
    at = draw.randrange(len(rows))
    name = draw.choice(rows[at]._fields)
    held = getattr(rows[at], name)
    value = odd_text(draw) if isinstance(held, str) else odd_number(draw, held)
    if name == "queue_id":
        value = max(-(1 << 31), min((1 << 31) - 1, int(value)))
    rows[at] = rows[at]._replace(**{name: value})
    return replace(manifest, **{part: tuple(rows)})


def planned(objects: MemoryObjects) -> object:
    """Ask an archive for everything that its manifest tells, and for some rows."""
    describe(objects)
    verify(objects)
    reader = StoreReader.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in reader.topics() for each in reader.queues(topic)]
    return bounds, reader.log.stop


def test_a_manifest_with_an_odd_value_is_read_or_refused(archive: MemoryObjects, report: Report) -> None:
    manifest, counted = newest(archive)[1], Counter[str]()
    for seed in range(MUTATIONS):
        draw = random.Random(seed)
        with suppress(OverflowError):  # a number that no manifest can hold
            data = with_odd_value(manifest, draw).encode()
            objects = MemoryObjects()
            objects.objects = dict(archive.objects)
            objects.put(manifest_key(2), np.frombuffer(data, np.uint8))
            try:
                found = judged(lambda _, objects=objects: planned(objects), data)
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
            counted["refused" if found is None else "read"] += 1
    report("manifests with an odd value", dict(counted))
    assert counted["refused"] > MUTATIONS // 3


def test_mutated_bytes_of_a_manifest_are_read_or_refused(
    archive: MemoryObjects, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    manifest = newest(archive)[1]
    monkeypatch.setattr(zlib, "crc32", lambda *_: 0)
    document, counted = manifest.encode(), Counter[str]()
    for seed in range(MUTATIONS):
        data = mutated(document, random.Random(seed))
        try:
            found: Any = judged(lambda data: Manifest.decode(data, "here"), data)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        counted["refused" if found is None else "read"] += 1
    report("mutated bytes of manifests", dict(counted))
    assert isinstance(judged(lambda data: Manifest.decode(data, "here"), document), Manifest)
