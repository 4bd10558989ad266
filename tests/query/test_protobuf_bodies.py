import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.bodies import body_format
from segmentlog.query.body_columns import BODY_ERROR
from segmentlog.store import ConfigError, MissingExtraError

F = FieldDescriptorProto
SCALARS: dict[str, tuple[Any, Any]] = {
    "double": (F.TYPE_DOUBLE, 0.5),
    "float": (F.TYPE_FLOAT, 1.5),
    "int32": (F.TYPE_INT32, -(1 << 31)),
    "int64": (F.TYPE_SINT64, (1 << 63) - 1),
    "uint32": (F.TYPE_UINT32, (1 << 32) - 1),
    "uint64": (F.TYPE_FIXED64, (1 << 64) - 1),
    "bool": (F.TYPE_BOOL, True),
    "string": (F.TYPE_STRING, "ä\0"),
    "bytes": (F.TYPE_BYTES, b"\xff\0"),
}
ROW = {name: value for name, (_, value) in SCALARS.items()}


def file_of_messages() -> FileDescriptorProto:
    """The file ``shop.proto``, as protoc describes it."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    for number, (name, (type_, _)) in enumerate(SCALARS.items(), 1):
        order.field.add(name=name, number=number, type=type_, label=F.LABEL_OPTIONAL)
    order.field.add(name="kind", number=20, type=F.TYPE_ENUM, type_name=".shop.Kind", label=F.LABEL_OPTIONAL)
    order.field.add(name="item", number=21, type=F.TYPE_MESSAGE, type_name=".shop.Item", label=F.LABEL_OPTIONAL)
    order.field.add(name="items", number=22, type=F.TYPE_MESSAGE, type_name=".shop.Item", label=F.LABEL_REPEATED)
    order.field.add(name="numbers", number=23, type=F.TYPE_INT32, label=F.LABEL_REPEATED)
    order.field.add(name="counts", number=24, type=F.TYPE_MESSAGE, type_name=".shop.Order.E", label=F.LABEL_REPEATED)
    time = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=25, type=F.TYPE_MESSAGE, type_name=time, label=F.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="E")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    item.oneof_decl.add(name="_n")
    item.field.add(name="n", number=2, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0)
    node: DescriptorProto = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=F.TYPE_MESSAGE, type_name=".shop.Node", label=F.LABEL_OPTIONAL)
    file.message_type.add(name="Empty")
    for level in range(40):  # 2^level values each
        made = file.message_type.add(name=f"Twice{level}")
        made.field.add(name="n", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
        for number in (2, 3) if level else ():
            before = f".shop.Twice{level - 1}"
            made.field.add(
                name=f"f{number}", number=number, type=F.TYPE_MESSAGE, type_name=before, label=F.LABEL_OPTIONAL
            )
    return file


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("protobuf") / "shop.desc"
    time = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    path.write_bytes(FileDescriptorSet(file=[time, file_of_messages()]).SerializeToString())
    return path


@pytest.fixture(scope="module")
def order(descriptors: Path) -> Any:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def parsed(descriptors: Path, bodies: list[bytes | None]) -> list[dict[str, Any]]:
    form = pickle.loads(pickle.dumps(body_format("protobuf", f"{descriptors}#shop.Order")))
    found = form.widen(pa.record_batch({"body": pa.array(bodies, pa.binary())}), keep_body=False)
    found.validate(full=True)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def whole_message(order: Any) -> bytes:
    message = order(**ROW, kind=1, item={"sku": "a"}, items=[{"sku": "b", "n": 0}, {}], numbers=[3, 4])
    message.counts["x"] = 5
    message.at.seconds, message.at.nanos = 1_769_860_800, 1000
    found: bytes = message.SerializeToString()
    return found


def test_every_type(descriptors: Path, order: Any) -> None:
    (row,) = parsed(descriptors, [whole_message(order)])
    assert row == ROW | {
        "kind": "PAID",
        "item": {"sku": "a", "n": None},
        "items": [{"sku": "b", "n": 0}, {"sku": "", "n": None}],
        "numbers": [3, 4],
        "counts": [("x", 5)],
        "at": datetime(2026, 1, 31, 12, 0, 0, 1, UTC),
        BODY_ERROR.name: None,
    }


def test_missing_and_unknown_fields(descriptors: Path, order: Any) -> None:
    unknown = b"\xf2\x06\x03abc"  # field 110, which the message does not know
    kind = order(kind=7).SerializeToString()
    empty, more, other = parsed(descriptors, [b"", unknown, kind])
    assert (empty["int32"], empty["string"], empty["kind"]) == (0, "", "NONE")
    assert (empty["item"], empty["at"], empty["items"], empty["counts"]) == (None, None, [], [])
    assert more == empty
    assert other["kind"] == "7"


def test_a_body_that_does_not_parse_costs_its_own_row(descriptors: Path, order: Any) -> None:
    body = whole_message(order)
    bodies = [body, None, body[:-1], b"\xff", b"\x42\x01\xff", b"\x0a\xff\xff\xff\xff\x0f", body]
    rows = parsed(descriptors, [*bodies])
    assert [row[BODY_ERROR.name] is None for row in rows] == [body == each for each in bodies]
    assert all(set(row.values()) - {row[BODY_ERROR.name]} == {None} for row in rows[1:-1])


def test_times_beyond_the_calendar(descriptors: Path, order: Any) -> None:
    message = order()
    message.at.seconds = 1 << 60
    first, second = parsed(descriptors, [message.SerializeToString(), b""])
    assert first[BODY_ERROR.name]
    assert second[BODY_ERROR.name] is None


@given(st.lists(st.binary(max_size=30)))
def test_bodies_of_any_bytes_cause_no_exception(descriptors: Path, bodies: list[bytes]) -> None:
    assert len(parsed(descriptors, [*bodies])) == len(bodies)


@given(
    st.fixed_dictionaries(
        {
            "uint64": st.integers(0, (1 << 64) - 1),
            "string": st.text(),
            "numbers": st.lists(st.integers(-5, 5)),
            "counts": st.dictionaries(st.text(), st.integers(-5, 5)),
        }
    )
)
def test_messages_are_read_back(descriptors: Path, order: Any, values: dict[str, Any]) -> None:
    (row,) = parsed(descriptors, [order(**values).SerializeToString()])
    assert {name: row[name] for name in values} | {"counts": dict(row["counts"])} == values


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("#shop.Ordr", "message `shop.Ordr` does not exist. Did you mean `shop.Order`?"),
        ("#shop.Node", "message shop.Node contains itself"),
        ("#shop.Empty", "message shop.Empty has no field"),
        ("#shop.Twice39", "it has more than 10000 fields"),
        ("", "does not name a file and a message"),
        (".lost#shop.Order", "No such file"),
    ],
)
def test_wrong_messages(descriptors: Path, message: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        body_format("protobuf", f"{descriptors}{message}")
    assert problem in caught.value.problem


@pytest.mark.parametrize("part", ["imports", "noise"])
def test_wrong_descriptor_sets(tmp_path: Path, part: str) -> None:
    data = FileDescriptorSet(file=[file_of_messages()]).SerializeToString() if part == "imports" else b"\xff\xff"
    (tmp_path / "wrong").write_bytes(data)
    with pytest.raises(ConfigError, match="--include_imports"):
        body_format("protobuf", f"{tmp_path / 'wrong'}#shop.Order")


def test_protobuf_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    monkeypatch.delitem(sys.modules, "segmentlog.query.protobuf_bodies")
    with pytest.raises(MissingExtraError, match="bodies of protobuf need the package protobuf"):
        body_format("protobuf", "x#y")
