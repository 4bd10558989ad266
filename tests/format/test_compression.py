"""Compressed bodies, and what must not come of hostile ones."""

import zlib

import pyarrow as pa
import pytest

from segmentlog.store.format.compression import inflate

BODY = b"a body that is worth compressing " * 40
LIMIT = 1 << 20


def compressed(kind: str, body: bytes) -> bytes:
    if kind == "zlib":
        return zlib.compress(body)
    return bytes(pa.compress(body, kind, asbytes=True)) if kind == "zstd" else lz4_frame(body)


def lz4_frame(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(body)
    return bytes(sink.getvalue().to_pybytes())


FLAGS = [(0x001, "zlib"), (0x301, "zlib"), (0x101, "lz4"), (0x201, "zstd"), (0x0D, "zlib")]


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
@pytest.mark.parametrize("body", [BODY, b"", b"x"])
def test_bodies_come_back(sys_flag: int, kind: str, body: bytes) -> None:
    data = compressed(kind, body)
    assert inflate(data, sys_flag, LIMIT) == body
    assert inflate(memoryview(data), sys_flag, LIMIT) == body


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
def test_the_limit_is_exact(sys_flag: int, kind: str) -> None:
    data = compressed(kind, BODY)
    assert inflate(data, sys_flag, len(BODY)) == BODY
    assert inflate(data, sys_flag, len(BODY) - 1) is None


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
def test_a_bomb_costs_no_more_than_the_limit(sys_flag: int, kind: str) -> None:
    before = pa.total_allocated_bytes()
    data = compressed(kind, bytes(64 << 20))
    assert len(data) < 1 << 20
    assert inflate(data, sys_flag, LIMIT) is None
    assert pa.total_allocated_bytes() - before < 8 << 20


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
@pytest.mark.parametrize("damage", ["cut short", "other bytes", "empty"])
def test_damage_is_none(sys_flag: int, kind: str, damage: str) -> None:
    data = bytearray(compressed(kind, BODY))
    if damage == "cut short":
        del data[len(data) // 2 :]
    elif damage == "other bytes":
        data[:8] = b"\xff" * 8
    else:
        data.clear()
    assert inflate(bytes(data), sys_flag, LIMIT) in {None, b""}
    if damage != "empty":
        assert inflate(bytes(data), sys_flag, LIMIT) is None


def test_a_damaged_checksum_is_seen() -> None:
    data = bytearray(zlib.compress(BODY))
    data[-1] ^= 1
    assert inflate(bytes(data), 1, LIMIT) is None


@pytest.mark.parametrize("kind", range(4, 8))
def test_unknown_formats(kind: int) -> None:
    assert inflate(zlib.compress(BODY), 1 | kind << 8, LIMIT) is None
