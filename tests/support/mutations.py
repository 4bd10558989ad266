"""Small stores in memory, and damage to them: what the attack on the reader is made of.

::

    StoreImage           all bytes of one store, and the ranges of its live data
       │  mutate(): one Mutation, drawn from a case's own random numbers, or a line of the table of fields
       ▼
    {path: bytes}      the files that changed; None for one that is gone
       │
       ▼
    MemoryFileSystem   the rest shared, nothing copied; each mapped file ends at a page without access
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from segmentlog.store.format import consume_queue
from segmentlog.store.format.message import Records
from segmentlog.store.format.walk import walk

from .crash.memory_fs import MemoryFileSystem
from .mutated_bytes import DAMAGE, block, over

Changes = dict[str, bytes | None]
Span = tuple[int, int]

LOG = "commitlog/"
QUEUES = "consumequeue/"
LIVE_SHARE = 0.85  # of damage drawn at random, so much is aimed at bytes that mean something


@dataclass(frozen=True)
class Target:
    """One integer of a store: a line of the table of fields."""

    file: str
    position: int
    width: int
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name} = {self.value} in {self.file} at {self.position}"


@dataclass(frozen=True)
class Mutation:
    kind: str
    what: str
    changes: Changes = field(repr=False)


@dataclass(frozen=True)
class StoreImage:
    name: str
    root: str
    files: Mapping[str, bytes]
    sealed: bool  # whether every record carries ``__CRC32#``

    @classmethod
    def load(cls, name: str, root: Path, *, sealed: bool) -> "StoreImage":
        return cls(name, str(root), {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}, sealed)

    @cached_property
    def fs(self) -> MemoryFileSystem:
        return MemoryFileSystem.of(self.files)

    def kind_of(self, folder: str) -> list[str]:
        return [path for path in self.files if path.startswith(f"{self.root}/{folder}")]

    @cached_property
    def records(self) -> dict[str, Records]:
        found = {}
        for path in self.kind_of(LOG):
            buffer = np.frombuffer(self.files[path], np.uint8)
            found[path] = walk(buffer, int(Path(path).name), 0, buffer.size).records
        return found

    @cached_property
    def live(self) -> dict[str, list[Span]]:
        spans: dict[str, list[Span]] = {}
        for path, content in self.files.items():
            if path in self.records:
                records = self.records[path]
                stops = records.positions + records.field("total_size")
                spans[path] = list(zip(records.positions.tolist(), stops.tolist(), strict=True))
            else:
                spans[path] = [(0, len(content.rstrip(b"\0")))]
        return {path: [s for s in found if s[1] > s[0]] for path, found in spans.items()}

    @cached_property
    def weighted(self) -> tuple[list[str], list[float]]:
        """Files with live bytes, and how often each is to be damaged: half of all damage goes to the log."""
        shares = {LOG: 0.55, QUEUES: 0.37, "": 0.08}
        groups: dict[str, list[str]] = {folder: [] for folder in shares}
        for path, spans in self.live.items():
            if spans:
                groups[next(f for f in shares if path.startswith(f"{self.root}/{f}"))].append(path)
        weights = {path: shares[folder] / len(paths) for folder, paths in groups.items() for path in paths}
        total = sum(weights.values())
        return list(weights), [weight / total for weight in weights.values()]

    def hits(self, changes: Changes) -> bool:
        """Return whether changes are of bytes that mean something."""
        return any(
            changed is None
            or any(self.files[path][start:stop] != changed[start:stop] for start, stop in self.live[path])
            for path, changed in changes.items()
        )

    @cached_property
    def log_stop(self) -> int:
        return max((int(Path(path).name) + len(self.files[path]) for path in self.kind_of(LOG)), default=0)

    @cached_property
    def record_bytes(self) -> int:
        return sum(int(records.field("total_size").sum()) for records in self.records.values())

    @cached_property
    def table(self) -> list[Target]:
        """Every length and offset of some records and entries, times the values that go wrong most easily."""
        return [*self._record_targets(), *self._entry_targets()]

    def _record_targets(self) -> Iterator[Target]:
        paths = [path for path, records in self.records.items() if len(records)]
        for path in (
            dict.fromkeys([paths[0], paths[len(paths) // 3], paths[len(paths) // 2], paths[-1]]) if paths else ()
        ):
            records = self.records[path]
            size = len(self.files[path])
            for row in dict.fromkeys([0, len(records) // 3, len(records) // 2, len(records) - 1]):
                at = int(records.positions[row])
                total = int(records.field("total_size")[row])
                body_at, topic_at = int(records.body_start[row]), int(records.topic_start[row])
                properties_at = int(records.properties_start[row])
                body, topic = int(records.body_length[row]), int(records.topic_length[row])
                properties = int(records.properties_length[row])
                topic_width = topic_at - body_at - body
                room = at + total - body_at - topic_width - 2
                physical = int(records.field("physical_offset")[row])
                queue_offset = int(records.field("queue_offset")[row])
                fields = [
                    ("total size", at, 4, total, (size - at, 90, 91)),
                    ("body length", body_at - 4, 4, body, (room, size - body_at)),
                    ("topic length", topic_at - topic_width, topic_width, topic, (room - body, 126, 128)),
                    ("properties length", properties_at - 2, 2, properties, (size - properties_at, 19, 20)),
                    ("queue offset", at + 20, 8, queue_offset, (1 << 20, 1 << 25, 1 << 32, 1 << 60)),
                    ("physical offset", at + 28, 8, physical, (self.log_stop, 1 << 32, 1 << 62)),
                    ("queue id", at + 12, 4, int(records.field("queue_id")[row]), (1, 2)),
                    ("sys flag", at + 36, 4, int(records.field("sys_flag")[row]), (0x10, 0x20, 0x30, 0x101, 0x201)),
                    ("magic", at + 4, 4, 0xDAA320A7, (0xDAA320AB, 0xDAA320A7, 0xCBD43194)),
                ]
                for name, position, width, true, bounds in fields:
                    yield from _targets(path, position, width, f"{name} of record {row}", true, bounds)

    def _entry_targets(self) -> Iterator[Target]:
        for path in self.kind_of(QUEUES)[:4]:
            entries = consume_queue.decode(self.files[path])
            written = np.flatnonzero(entries["size"] > 0)
            rows = written[[0, written.size // 2, written.size - 1]].tolist() if written.size else []
            for row in dict.fromkeys(rows):
                at = row * consume_queue.ENTRY_BYTES
                other = int(entries["physical_offset"][written[0]])
                offset, size, code = (int(entries[name][row]) for name in consume_queue.NATIVE.names or ())
                bounds = (self.log_stop, self.log_stop - 90, other, 1 << 32, (1 << 63) - size)
                yield from _targets(path, at, 8, f"physical offset of entry {row}", offset, bounds)
                yield from _targets(
                    path, at + 8, 4, f"size of entry {row}", size, (90, 91, self.log_stop - offset, 1 << 24)
                )
                yield from _targets(path, at + 12, 8, f"tags code of entry {row}", code, (-(1 << 31) - 1, 1 << 31))
            spare = len(self.files[path]) // consume_queue.ENTRY_BYTES - 1
            if written.size and spare > written[-1]:
                yield from _targets(
                    path, spare * 20 + 8, 4, "size of an entry behind the end", 0, (91, 200, (1 << 31) - 2)
                )


def _targets(  # noqa: PLR0917 - one integer: where, how wide, what it is
    path: str, position: int, width: int, name: str, true: int, bounds: tuple[int, ...]
) -> Iterator[Target]:
    low, high = -(1 << (8 * width - 1)), (1 << (8 * width - 1)) - 1
    values = {low, -1, 0, 3, 4, true - 1, true + 1, high}
    for bound in bounds:
        values |= {bound, bound + 1}
    for value in sorted(values - {true}):
        wrapped = value & ((1 << (8 * width)) - 1)
        if low <= value <= high or width == 4:
            yield Target(path, position, width, name, wrapped)


# Damage


def mutate(image: StoreImage, kind: str, rng: np.random.Generator) -> Mutation:
    draw = random.Random(int(rng.integers(1 << 62)))
    while True:  # zeros onto zeros and the like are no damage
        (path, at), (other, place) = _place(image, draw), _place(image, draw)
        content, donor = image.files[path], image.files[other]
        changes: Changes = {}
        if kind == "missing":
            changes[path] = None
        elif kind in DAMAGE:
            changed = DAMAGE[kind](content, at, draw)
            changes[path] = changed[: len(content)].ljust(len(content), b"\0") if kind == "shift" else changed
        else:
            one, start = block(content, at, draw), block(donor, place, draw).start
            piece = content[one][: len(donor) - start]
            if kind == "swap":
                changes[path] = over(content, one.start, donor[start : start + len(piece)])
            changes[other] = over(changes.get(other) or donor, start, piece)
        if any(image.files[each] != changed for each, changed in changes.items()):
            where = path.removeprefix(f"{image.root}/")
            return Mutation(kind, f"{kind} in {image.name} at {at} of {where}, {place} of {other}", changes)


def set_field(image: StoreImage, target: Target) -> Mutation:
    changed = over(image.files[target.file], target.position, target.value.to_bytes(target.width, "big"))
    return Mutation(FIELD, f"{image.name}: {target}", {target.file: changed})


def _place(image: StoreImage, draw: random.Random) -> tuple[str, int]:
    paths, weights = image.weighted
    (path,) = draw.choices(paths, weights)
    if draw.random() < LIVE_SHARE:
        return path, draw.randrange(*draw.choice(image.live[path]))
    return path, draw.randrange(len(image.files[path]))


DRAWN: Final = (*DAMAGE, "missing", "swap", "duplicate")
"""Kinds of random damage."""
FIELD: Final = "a field of the table"
