"""Answers of brokers, and schemas and bodies of Avro and Protobuf, with changes: an error of ours, or a value.

No case takes more than 5 s of CPU, or makes the process grow.
"""

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessages

from segmentlog.jobs import resending
from segmentlog.jobs.resending import Cluster
from segmentlog.query.bodies import body_format
from segmentlog.query.body_columns import BodyFormat
from segmentlog.store.format.remoting import Answer, AnswerReader
from segmentlog.store.ha import Address
from support.mutated_bytes import judged, mutated
from support.scale import scale
from support.scripted_broker import Request, frame

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

CASES = scale(300, 10_000, 100_000)

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


def attack(read: Callable[[bytes], Any], document: bytes, seed: int = 0) -> int:
    """Return how many changed documents are read as something."""
    assert judged(read, document) is not None
    values = (judged(read, mutated(document, random.Random(seed + number))) for number in range(CASES))
    count = sum(value is not None for value in values)
    assert 0 < count < CASES
    return count


def test_frames_of_answers() -> None:
    request = Request(310, 7, {}, b"")
    document = frame(request, queueOffset=17, queueId=3, remark="x") + frame(request, body=b"{}")

    def read(data: bytes) -> object:
        found = [(each.number("queueOffset"), each.document()) for each in AnswerReader().feed(data)]
        return found or None

    attack(read, document)


@pytest.mark.parametrize("by_name_server", [False, True])
def test_topics_and_routes(monkeypatch: pytest.MonkeyPatch, *, by_name_server: bool) -> None:
    bodies: list[bytes] = []

    class Scripted:
        def __init__(self, _: Address) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def ask(self, *_: object) -> Answer:
            return Answer(1, 0, "", {}, bodies[-1])

    monkeypatch.setattr(resending, "Connection", Scripted)
    address = Address("127.0.0.1", 1)
    queues = '{"brokerName":"a","writeQueueNums":4,"readQueueNums":4,"perm":6}'
    route = (
        f'{{"brokerDatas":[{{"brokerName":"a","brokerAddrs":{{0:"10.0.0.1:10911",1:"h:1"}}}}],"queueDatas":[{queues}]}}'
    )
    table = f'{{"topicConfigTable":{{"orders":{queues},"other":{queues}}},"dataVersion":{{"counter":1}}}}'

    def read(data: bytes) -> object:
        bodies.append(data)
        where = {"name_server": address} if by_name_server else {"broker": address}
        return Cluster(**where, timeout_s=1).queues("orders")

    attack(read, (route if by_name_server else table).encode())


def test_schemas_of_avro() -> None:
    body = avro_body()

    def read(data: bytes) -> object:
        form = body_format("avro", data.decode("utf-8", "replace"))
        parsed(form, body)
        return form.schema

    attack(read, json.dumps(AVRO).encode())


def test_bodies_of_avro() -> None:
    form = body_format("avro", json.dumps(AVRO))
    attack_bodies(form, avro_body())


def test_schemas_of_protobuf(tmp_path: Path) -> None:
    schema, body = descriptors()
    path = tmp_path / "set"

    def read(data: bytes) -> object:
        path.write_bytes(data)
        form = body_format("protobuf", f"{path}#shop.Order")
        parsed(form, body)
        return form.schema

    attack(read, schema)


def test_bodies_of_protobuf(tmp_path: Path) -> None:
    schema, body = descriptors()
    (tmp_path / "set").write_bytes(schema)
    attack_bodies(body_format("protobuf", f"{tmp_path / 'set'}#shop.Order"), body)


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_bodies_of_texts(kind: str) -> None:
    columns = "id string, n bigint, at timestamp, sum decimal(20,2), x double, b boolean"
    bodies = {
        "json": b'{"id":"o-17","n":17,"at":"2026-01-31T12:00:00","sum":"1.50","x":1.5,"b":true,"more":[{"a":1}]}',
        "csv": b'"o-17",17,2026-01-31T12:00:00Z,1.50,1.5,true',
    }
    attack_bodies(body_format(kind, columns), bodies[kind])


def attack_bodies(form: BodyFormat, body: bytes) -> None:
    """A changed body costs its own row only: the row beside it stays as it is."""
    expected = form.parse(pa.array([body], pa.binary())).columns.to_pylist()

    def read(data: bytes) -> object:
        parsed(form, data)
        columns, errors = form.parse(pa.array([body, data, body], pa.binary()))
        assert [columns.to_pylist()[at] for at in (0, 2)] == expected * 2
        assert errors.is_null().to_pylist()[::2] == [True, True]
        return None if errors[1].is_valid else columns

    attack(read, body)
