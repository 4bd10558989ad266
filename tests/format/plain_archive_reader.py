"""Reader of archives in a local directory, made from docs/format/archive.md alone: it imports nothing of this project.

python tests/format/plain_archive_reader.py DIRECTORY [TOPIC]
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

COLUMNS = [
    *(("piece", "<i4"), ("queue", "<i4"), ("row", "<i4"), ("rows", "<i4"), ("first", "<i8"), ("gaps", "<i8")),
    *(("first_position", "<i4"), ("last_position", "<i4"), ("bytes", "<i8")),
    *(("first_time", "<i8"), ("last_time", "<i8"), ("rises", "u1")),
]
ROW = np.dtype([("offset", "<i8"), ("position", "<i4"), ("size", "<i4"), ("code", "<i8"), ("time", "<i8")])


def document(data: bytes, magic: bytes) -> dict[str, Any]:
    assert data[:8] == magic
    assert int.from_bytes(data[8:12], "big") == zlib.crc32(data[12:])
    assert int.from_bytes(data[12:16], "big") == 2
    row: dict[str, Any] = pa.ipc.open_stream(data[16:]).read_next_batch().to_pylist()[0]
    return row


class Archive:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        newest = max((folder / "manifests").glob("*.arrow"))
        self.manifest = document(newest.read_bytes(), b"SLARCHIV")
        assert self.manifest["reader"] <= 2
        assert set(self.manifest["features"]) <= {"dledger"}  # places are those of records, wherever their headers are
        self.parts = [self._part(each) for each in self.manifest["parts"]]

    def _part(self, name: dict[str, Any]) -> dict[str, Any]:
        path = self.folder / f"parts/{name['start']:020d}-{name['stop']:020d}.{name['digest'][:16]}.part"
        data = path.read_bytes()
        assert len(data) == name["size"]
        part = document(data[: name["head_size"]], b"SLARPART")
        runs, at = [], name["head_size"]
        for block in part["blocks"]:
            packed = data[at : at + block["size"]]
            assert zlib.crc32(packed) == block["crc"]
            runs += self._runs(packed, block["runs"])
            at += block["size"]
        assert len(runs) == sum(queue["runs"] for queue in part["queues"]) == name["runs"]
        return part | {"runs": runs}

    @staticmethod
    def _runs(packed: bytes, count: int) -> list[dict[str, int]]:
        width = sum(np.dtype(kind).itemsize for _, kind in COLUMNS)
        raw = pa.decompress(packed, decompressed_size=count * width, codec="zstd", asbytes=True)
        found, at = {}, 0
        for name, kind in COLUMNS:
            found[name] = np.frombuffer(raw, kind, count, at).tolist()
            at += count * np.dtype(kind).itemsize
        return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]

    def queues(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        """First and last queue offset and number of messages, from statistics."""
        found: dict[tuple[str, int], tuple[int, int, int]] = {}
        for part in self.parts:
            for queue in part["queues"]:
                key = queue["topic"], queue["queue_id"]
                first, _, rows = found.get(key, (queue["first"], 0, 0))
                found[key] = first, queue["last"], rows + queue["rows"]
        return found

    def records(self, topic: str, queue_id: int) -> Iterator[tuple[int, int, bytes]]:
        """Queue offset, store time and bytes of each record of a queue."""
        for part in self.parts:
            for run in part["runs"]:
                queue, piece = part["queues"][run["queue"]], part["pieces"][run["piece"]]
                if (queue["topic"], queue["queue_id"]) != (topic, queue_id):
                    continue
                stop = piece["objects"][-1]["stop"]
                name = f"{piece['start']:020d}-{stop:020d}.{piece['pack_digest'][:16]}.entries"
                pack = (self.folder / f"queues/{piece['segment']:020d}/{name}").read_bytes()
                rows = np.frombuffer(pack, ROW, run["rows"], piece["pack_start"] + run["row"] * ROW.itemsize)
                segment = self._segment(piece)
                for offset, position, size, _, time in rows.tolist():
                    begin = piece["segment"] + position - piece["start"]
                    yield offset, time, segment[begin : begin + size]

    def _segment(self, piece: dict[str, Any]) -> bytes:
        start, data = piece["start"], b""
        for each in piece["objects"]:
            name = f"{start:020d}-{each['stop']:020d}.{each['digest'][:16]}"
            data += (self.folder / f"log/{piece['segment']:020d}/{name}").read_bytes()
            start = each["stop"]
        return data
