"""Mutated documents: manifests, a store's own state, brokers' JSON and answers, schemas and bodies of messages.

::

    subject ──► document ──► mutated ──► read ──► a value or an error of ours, 5 s of CPU at most, no swollen memory
                (CRCs are zero on both sides: checksums stop chance, not an attacker)
"""

import io
import json
import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self
from unittest.mock import patch

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessages

from segmentlog.jobs import resending
from segmentlog.jobs.resending import Cluster
from segmentlog.query.bodies import body_format
from segmentlog.query.body_columns import BodyFormat
from segmentlog.store import QueueRange, Snapshot
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
from segmentlog.store.format.archive_part import Part
from segmentlog.store.format.batch_history import BatchHistory
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.broker_config import client_offsets, consumer_offsets, parse_properties
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.format.ledger import Batch, Ledger, LedgerEntry, QueueSpan
from segmentlog.store.format.remoting import Answer, AnswerReader
from segmentlog.store.ha import Address
from segmentlog.store.objects.manifests import newest
from support.archives import content
from support.crash.memory_fs import MemoryFileSystem
from support.memory_objects import MemoryObjects
from support.mutated_bytes import attacked, odd_number, odd_text
from support.scale import Report, scale
from support.scripted_broker import Request, frame
from support.small_store import write_small_store

pytestmark = [pytest.mark.attack, pytest.mark.scaled, pytest.mark.timeout(scale(120, 1800, 36_000))]
MUTATIONS: Final = scale(100, 2_000, 200_000)
PLANS: Final = scale(100, 400, 40_000)
"""Archives with an odd value: each is opened and planned, which takes 50 times as long as reading a document."""
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


# Schemas and bodies of messages

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 4}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Item", "fields": [{"name": "kind", "type": "Kind"}]},
            },
        },
        {"name": "more", "type": {"type": "map", "values": "double"}},
    ],
}
ROW = {
    "id": "o-17",
    "n": 1 << 40,
    "at": 1_769_817_600_000,
    "sum": b"\0\xff",
    "kind": "B",
    "mark": b"abcd",
    "items": [{"kind": "A"}] * 3,
    "more": {"a": 1.5, "b": -1.0},
}


def avro_body() -> bytes:
    stream = io.BytesIO()
    plain = json.loads(json.dumps(AVRO).replace(', "logicalType": "timestamp-millis"', "").replace('"decimal"', '"x"'))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), ROW)
    return stream.getvalue()


def descriptors() -> tuple[bytes, bytes]:
    """A descriptor set, and a body of its message."""
    kinds = FieldDescriptorProto
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    order, item = file.message_type.add(name="Order"), file.message_type.add(name="Item")
    order.field.add(name="id", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="n", number=2, type=kinds.TYPE_FIXED64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="k", number=3, type=kinds.TYPE_ENUM, type_name=".shop.Kind", label=kinds.LABEL_OPTIONAL)
    order.field.add(name="i", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Item", label=kinds.LABEL_REPEATED)
    time = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=5, type=kinds.TYPE_MESSAGE, type_name=time, label=kinds.LABEL_OPTIONAL)
    item.field.add(name="n", number=1, type=kinds.TYPE_SINT32, label=kinds.LABEL_REPEATED)
    needed = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    made = GetMessages([needed, file])["shop.Order"]
    body = made(id="o-17", n=(1 << 64) - 1, k=0, i=[{"n": [1, -2]}, {}], at={"seconds": 1_769_817_600, "nanos": 5})
    return FileDescriptorSet(file=[needed, file]).SerializeToString(), body.SerializeToString()


def parsed(form: BodyFormat, body: bytes) -> None:
    found = form.widen(pa.record_batch({"body": pa.array([body, body], pa.binary())}), keep_body=False)
    found.validate(full=True)
    rows = found.to_pylist()
    assert repr(rows[0]) == repr(rows[1])


def beside_whole_bodies(form: BodyFormat, body: bytes) -> tuple[bytes, Read]:
    """A changed body costs its own row only: the rows beside it stay as they are."""
    expected = form.parse(pa.array([body], pa.binary())).columns.to_pylist()

    def read(data: bytes) -> object:
        parsed(form, data)
        columns, errors = form.parse(pa.array([body, data, body], pa.binary()))
        assert [columns.to_pylist()[at] for at in (0, 2)] == expected * 2
        assert errors.is_null().to_pylist()[::2] == [True, True]
        return None if errors[1].is_valid else columns

    return body, read


def schemas_of_avro() -> tuple[bytes, Read]:
    body = avro_body()

    def read(data: bytes) -> object:
        form = body_format("avro", data.decode("utf-8", "replace"))
        parsed(form, body)
        return form.schema

    return json.dumps(AVRO).encode(), read


def schemas_of_protobuf(path: Path) -> tuple[bytes, Read]:
    schema, body = descriptors()

    def read(data: bytes) -> object:
        path.write_bytes(data)
        form = body_format("protobuf", f"{path}#shop.Order")
        parsed(form, body)
        return form.schema

    return schema, read


def bodies_of_protobuf(path: Path) -> tuple[bytes, Read]:
    schema, body = descriptors()
    path.write_bytes(schema)
    return beside_whole_bodies(body_format("protobuf", f"{path}#shop.Order"), body)


COLUMNS: Final = "id string, n bigint, at timestamp, sum decimal(20,2), x double, b boolean"
JSON_BODY: Final = b'{"id":"o-17","n":17,"at":"2026-01-31T12:00:00","sum":"1.50","x":1.5,"b":true,"more":[{"a":1}]}'
CSV_BODY: Final = b'"o-17",17,2026-01-31T12:00:00Z,1.50,1.5,true'
BODIES: Final[dict[str, Callable[[Path], tuple[bytes, Read]]]] = {
    "schemas of Avro": lambda _: schemas_of_avro(),
    "bodies of Avro": lambda _: beside_whole_bodies(body_format("avro", json.dumps(AVRO)), avro_body()),
    "schemas of Protobuf": schemas_of_protobuf,
    "bodies of Protobuf": bodies_of_protobuf,
    "bodies of JSON": lambda _: beside_whole_bodies(body_format("json", COLUMNS), JSON_BODY),
    "bodies of CSV": lambda _: beside_whole_bodies(body_format("csv", COLUMNS), CSV_BODY),
}


# Answers of brokers


def frames() -> tuple[bytes, Read]:
    request = Request(310, 7, {}, b"")

    def read(data: bytes) -> object:
        return [(each.number("queueOffset"), each.document()) for each in AnswerReader().feed(data)] or None

    return frame(request, queueOffset=17, queueId=3, remark="x") + frame(request, body=b"{}"), read


def queues_of(where: str) -> Read:
    """Ask a broker or a name server for queues; the answer is the document."""

    def read(data: bytes) -> object:
        class Scripted:
            def __init__(self, _: Address) -> None: ...

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None: ...

            def ask(self, *_: object) -> Answer:
                return Answer(1, 0, "", {}, data)

        with patch.object(resending, "Connection", Scripted):
            return Cluster(**{where: Address("127.0.0.1", 1)}, timeout_s=1).queues("orders")  # type: ignore[arg-type]

    return read


QUEUES: Final = b'{"brokerName":"a","writeQueueNums":4,"readQueueNums":4,"perm":6}'
ROUTE: Final = (
    b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{0:"10.0.0.1:10911",1:"h:1"}}],"queueDatas":[%s]}' % QUEUES
)
TABLE: Final = b'{"topicConfigTable":{"orders":%s,"other":%s},"dataVersion":{"counter":1}}' % (QUEUES, QUEUES)
ANSWERS: Final[dict[str, tuple[bytes, Read]]] = {
    "frames of answers": frames(),
    "topics of a broker": (TABLE, queues_of("broker")),
    "routes of a name server": (ROUTE, queues_of("name_server")),
}


@pytest.mark.parametrize("name", [*sealed(), *plain(), *ANSWERS, *BODIES])
def test_a_mutated_document_is_read_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    if name in sealed():
        monkeypatch.setattr(zlib, "crc32", lambda *_: 0)
    document, read = BODIES[name](tmp_path / "set") if name in BODIES else {**sealed(), **plain(), **ANSWERS}[name]
    counted = attacked(read, document, MUTATIONS)
    report(f"mutations of {name}", dict(counted))
    assert name in {*sealed(), *plain()} or len(counted) == 2


# Manifests


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> MemoryObjects:
    objects = MemoryObjects()
    push(write_small_store(tmp_path_factory.mktemp("archive") / "store"), objects)
    return objects


def with_odd_manifest(manifest: Manifest, draw: random.Random) -> Manifest:
    """Return a manifest of which one name or number is another one."""
    part = draw.choice(["parts", "files", "store", "order", "last"])
    if part == "store":
        return replace(manifest, store={**manifest.store, draw.choice(list(manifest.store)): odd_text(draw)})
    if part == "last":
        assert manifest.last is not None
        return replace(manifest, last=odd_row([manifest.last], draw)[0])
    if part == "order":
        return with_odd_order(manifest, draw, ["parts", "files"])
    return replace(manifest, **{part: odd_row(getattr(manifest, part), draw)})


def with_odd_part(part: Part, draw: random.Random) -> Part:
    """Return a part of which one name or number is another one."""
    name = draw.choice(["pieces", "runs", "totals", "queues", "order"])
    if name == "order":
        return with_odd_order(part, draw, ["pieces", "queues", "runs", "totals"])
    if name not in {"runs", "totals"}:
        return replace(part, **{name: odd_row(getattr(part, name), draw)})
    rows = getattr(part, name).copy()
    column, row = draw.choice(rows.dtype.names or ()), draw.randrange(rows.size)
    bits = 8 * rows.dtype[column].itemsize
    value = odd_number(draw, int(rows[column][row]))
    rows[column][row] = value if bits == 64 else (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return replace(part, **{name: rows})


def with_odd_order(document: Any, draw: random.Random, names: Sequence[str]) -> Any:
    name = draw.choice(names)
    rows = getattr(document, name)
    return replace(document, **{name: draw.choice([rows[::-1], rows[1:], rows[:-1], rows[:0]])})


def odd_row(held_rows: Sequence[Any], draw: random.Random) -> tuple[Any, ...]:
    """Return named tuples of which one value is another one."""
    rows = list(held_rows)
    at = draw.randrange(len(rows))
    name = draw.choice(rows[at]._fields)
    held = getattr(rows[at], name)
    if name == "objects":
        rows[at] = rows[at]._replace(objects=odd_row(held, draw))
        return tuple(rows)
    value: Any = odd_text(draw) if isinstance(held, str) else odd_number(draw, held)
    if name == "queue_id":
        value = max(-(1 << 31), min((1 << 31) - 1, int(value)))
    rows[at] = rows[at]._replace(**{name: value})
    return tuple(rows)


def planned(objects: MemoryObjects) -> object:
    """Ask an archive for everything that its manifest tells, and for some rows."""
    describe(objects)
    verify(objects)
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
    ranges = [QueueRange(each.key, each.min_offset, each.max_offset) for each in bounds]
    return [len(task.ranges) for task in snapshot.plan(ranges, max_bytes=4_000)], snapshot.log.stop


def test_a_manifest_with_an_odd_value_is_read_or_refused(archive: MemoryObjects, report: Report) -> None:
    manifest = newest(archive)[1]

    def changed(_: bytes, draw: random.Random) -> bytes:
        while True:
            with suppress(OverflowError):  # a number that no manifest can hold
                return with_odd_manifest(manifest, draw).encode()

    def read(data: bytes) -> object:
        objects = MemoryObjects()
        objects.objects = dict(archive.objects)
        objects.put(manifest_key(2), np.frombuffer(data, np.uint8))
        return planned(objects)

    counted = attacked(read, manifest.encode(), PLANS, changed)
    report("manifests with an odd value", dict(counted))
    assert counted["refused"] > PLANS // 3


def test_a_part_with_an_odd_value_is_read_or_refused(archive: MemoryObjects, report: Report) -> None:
    manifest, part = newest(archive)[1], content(archive).part

    def changed(_: bytes, draw: random.Random) -> bytes:
        while True:
            with suppress(OverflowError, AssertionError, ValueError, IndexError):  # a number that no part can hold
                data, head_bytes = with_odd_part(part, draw).encode()
                return head_bytes.to_bytes(4, "big") + data

    def read(data: bytes) -> object:
        objects = MemoryObjects()
        objects.objects = dict(archive.objects)
        name = manifest.parts[0]._replace(head_size=int.from_bytes(data[:4], "big"), size=len(data) - 4)
        objects.put(name.key, np.frombuffer(data[4:], np.uint8))
        objects.put(manifest_key(2), np.frombuffer(replace(manifest, parts=(name,)).encode(), np.uint8))
        return planned(objects)

    data, head_bytes = part.encode()
    counted = attacked(read, head_bytes.to_bytes(4, "big") + data, PLANS, changed)
    report("parts with an odd value", dict(counted))
    assert counted["refused"] > PLANS // 4


def test_mutated_bytes_of_a_part_are_read_or_refused(
    archive: MemoryObjects, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    part = content(archive).part
    monkeypatch.setattr(zlib, "crc32", lambda *_: 0)
    data, head_bytes = part.encode()

    def read(changed: bytes) -> object:
        return Part.decode(changed[:head_bytes], "here").with_runs(changed, "here")

    report("mutated bytes of parts", dict(attacked(read, data, MUTATIONS)))


def test_mutated_bytes_of_a_manifest_are_read_or_refused(
    archive: MemoryObjects, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    manifest = newest(archive)[1]
    monkeypatch.setattr(zlib, "crc32", lambda *_: 0)
    counted = attacked(lambda data: Manifest.decode(data, "here"), manifest.encode(), MUTATIONS)
    report("mutated bytes of manifests", dict(counted))
