r"""Bodies of Protocol Buffers: one message each, as columns.

::

    protoc --descriptor_set_out=orders.desc --include_imports orders.proto

    orders.desc#shop.Order  ──► descriptor of the message ──► schema, and a reader of each field

A field without presence has its default where a body lacks it. Any other field that is missing is null. Enums are the
names of their values, or their number as text where it has no name. Fields that the message does not know are ignored.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from segmentlog.store import ConfigError

from .body_columns import RowBodies, SchemaSize
from .suggestions import did_you_mean, listing

Read: TypeAlias = Callable[[Any], Any]

_TIME: Final = "google.protobuf.Timestamp"
_UNSIGNED: Final = pa.decimal128(20, 0)  # 64 bits without a sign, which Spark has no integer for


@dataclass(frozen=True)
class ProtobufBodies(RowBodies):
    """Bodies that are a message of Protocol Buffers each."""

    descriptors: bytes  # a FileDescriptorSet
    message: str  # full name

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(list(_struct(self._descriptor(), (), SchemaSize())))

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        descriptor = self._descriptor()
        made, read = GetMessageClass(descriptor), _reader(descriptor)

        def decode(body: bytes) -> dict[str, Any]:
            row: dict[str, Any] = read(made.FromString(body))
            return row

        return decode

    def _descriptor(self) -> Descriptor:
        pool = DescriptorPool()
        names: list[str] = []
        for file in FileDescriptorSet.FromString(self.descriptors).file:
            pool.AddSerializedFile(file.SerializeToString())
            names += [f"{file.package}.{each.name}".lstrip(".") for each in file.message_type]
        try:
            return pool.FindMessageTypeByName(self.message)
        except KeyError:
            hint = f"{did_you_mean(self.message, names)}The messages are {listing(names)}"
            raise ValueError(f"message `{self.message}` does not exist. {hint}") from None


def protobuf_format(schema: object, named: Callable[[str], str]) -> ProtobufBodies:
    """Make the format of ``FILE#package.Message``; `ConfigError` if it cannot be."""
    path, _, message = str(schema).rpartition("#") if isinstance(schema, str | os.PathLike) else ("", "", "")
    fix = "Pass FILE#package.Message, where protoc --descriptor_set_out --include_imports wrote FILE"
    if not path or not message:
        raise ConfigError(f"{named('schema')}={schema!r} does not name a file and a message", fix=fix)
    try:
        with open(path, "rb") as file:
            made = ProtobufBodies(file.read(), message)
        _ = made.schema
    except (OSError, ValueError, TypeError, KeyError, DecodeError) as error:
        raise ConfigError(f"{named('schema')}: {error}", path=path, fix=fix) from None
    return made


def _struct(descriptor: Descriptor, outer: tuple[str, ...], size: SchemaSize) -> pa.DataType:
    if descriptor.full_name in outer:
        raise ValueError(f"message {descriptor.full_name} contains itself")
    outer = (*outer, descriptor.full_name)
    if not descriptor.fields:
        raise ValueError(f"message {descriptor.full_name} has no field")
    size.add(len(descriptor.fields), len(outer))
    return pa.struct([pa.field(each.name, _type(each, outer, size)) for each in descriptor.fields])


def _type(field: FieldDescriptor, outer: tuple[str, ...], size: SchemaSize) -> pa.DataType:
    """Return the type of a field, which may be repeated."""
    entry = _map_entry(field)
    if entry is not None:
        key, value = (entry.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_type(key, outer, size), _type(value, outer, size))
    kind = _single_type(field, outer, size)
    return pa.list_(kind) if field.is_repeated else kind


def _single_type(field: FieldDescriptor, outer: tuple[str, ...], size: SchemaSize) -> pa.DataType:
    if field.message_type is not None:
        is_time = field.message_type.full_name == _TIME
        return pa.timestamp("us", tz="UTC") if is_time else _struct(field.message_type, outer, size)
    types = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: _UNSIGNED,
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.binary() if field.type == field.TYPE_BYTES else pa.string(),
    }
    kind: pa.DataType = types[field.cpp_type]
    return kind


def _map_entry(field: FieldDescriptor) -> "Descriptor | None":
    entry = field.message_type
    return entry if entry is not None and entry.GetOptions().map_entry else None


def _reader(descriptor: Descriptor) -> Read:
    """Return a function from a message to its values by field."""
    fields = [(field.name, field.has_presence, _field_reader(field)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else of_field(getattr(message, name))
            for name, has_presence, of_field in fields
        }

    return read


def _field_reader(field: FieldDescriptor) -> Read:
    entry = _map_entry(field)
    if entry is not None:
        of_value = _value_reader(entry.fields_by_name["value"])
        return lambda found: [(key, of_value(found[key])) for key in found]
    of_one = _value_reader(field)
    return (lambda found: [of_one(each) for each in found]) if field.is_repeated else of_one


def _value_reader(field: FieldDescriptor) -> Read:
    if field.message_type is not None:
        if field.message_type.full_name == _TIME:
            return lambda found: found.seconds * 1_000_000 + found.nanos // 1000
        return _reader(field.message_type)
    if field.enum_type is not None:
        return _enum_reader(field.enum_type)
    return lambda value: value


def _enum_reader(enum: EnumDescriptor) -> Read:
    names = {value.number: value.name for value in enum.values}
    return lambda number: names.get(number, str(number))
