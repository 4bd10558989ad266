"""Index files with random damage anywhere: a look-up finds what a scan of all records finds, and ends.

Each case damages the files of one store in one to three places each. All keys are then looked up in one call, which
reads the entries as a list. Keys of damaged chains follow, so few that chains are followed. Some of them are looked up
by a new `Finder` each, which proves one chain alone.

Left out is what the documentation names as invisible: an entry whose hash became another one of the same slot.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from segmentlog.store import Snapshot
from segmentlog.store.find import Finder, KeyField
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import ENTRY, HEADER, SLOT, decode_header
from support.damaged_indexes import GEOMETRY, KEYS, TOPICS, a_store, pairs_of
from support.indexed_stores import brute_force, every_record
from support.mutated_bytes import DAMAGE
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

PARTS = scale(1, 6, 20)
CASES = scale(7, 60, 1_000)
"""Of each part."""
SINGLES = 4
CHAINS = 90  # of two topics, fewer than slots: chains are followed
SECONDS_MAX = 120
"""Of one look-up, on a machine that does much else; a hang takes longer."""

Content = bytearray
Draw = np.random.Generator


def number(draw: Draw, stop: int) -> int:
    return int(draw.integers(0, stop))


def header_field(content: Content, draw: Draw) -> None:
    name = str(draw.choice(HEADER.names))
    kind, at = HEADER.fields[name][:2]
    value = int(draw.choice([0, 1, -1, 2, 350, 699, 700, (1 << 31) - 1]))
    content[at : at + kind.itemsize] = value.to_bytes(kind.itemsize, "big", signed=True)


def a_slot(content: Content, draw: Draw) -> None:
    at = HEADER.itemsize + SLOT.itemsize * number(draw, GEOMETRY.slots)
    content[at : at + 4] = (number(draw, 720) * number(draw, 2)).to_bytes(4, "big")


def a_link(content: Content, draw: Draw) -> None:
    """Let an entry name any entry, or none, as the one before it: forward, in a circle, into another chain."""
    at = GEOMETRY.entry_position(1 + number(draw, 698)) + ENTRY.fields["previous"][1]
    content[at : at + 4] = (number(draw, 720) * number(draw, 2)).to_bytes(4, "big")


def an_offset(content: Content, draw: Draw) -> None:
    at = GEOMETRY.entry_position(1 + number(draw, 698)) + ENTRY.fields["physical_offset"][1]
    before = int.from_bytes(content[at : at + 8], "big")
    content[at : at + 8] = max(before + number(draw, 400) - 200, 0).to_bytes(8, "big")


def two_entries(content: Content, draw: Draw) -> None:
    one, two = (GEOMETRY.entry_position(1 + number(draw, 698)) for _ in range(2))
    size = ENTRY.itemsize
    content[one : one + size], content[two : two + size] = content[two : two + size], content[one : one + size]


def anything(content: Content, draw: Draw) -> None:
    damage = ANYWHERE[number(draw, len(ANYWHERE))]
    content[:] = damage(bytes(content), number(draw, len(content)), random.Random(number(draw, 1 << 62)))


def a_sector_of_elsewhere(content: Content, draw: Draw) -> None:
    source, target = (512 * number(draw, max(len(content) // 512, 1)) for _ in range(2))
    content[target : target + 512] = content[source : source + 512]


ANYWHERE = [damage for name, damage in DAMAGE.items() if name not in {"shift", "noise"}]
"""The others give many entries random hashes, one of which is of the same slot: such cases are left out."""
DAMAGES: tuple[Callable[[Content, Draw], None], ...] = (
    *(anything,) * 3,
    a_sector_of_elsewhere,
    header_field,
    a_slot,
    a_link,
    an_offset,
    two_entries,
)


class Damage(NamedTuple):
    """Difference between a file and its damaged content."""

    hidden: bool
    """True if an entry has another hash of the same slot."""
    slots: set[int]
    """Slots whose chains have a damaged slot or entry."""


def compared(whole: bytes, content: Content) -> Damage:
    before, after = (bytes(each).ljust(GEOMETRY.file_bytes, b"\0")[: GEOMETRY.file_bytes] for each in (whole, content))
    start = GEOMETRY.entry_position(0)
    slots, slots_now = (np.frombuffer(each[HEADER.itemsize : start], SLOT) for each in (before, after))
    entries, entries_now = (np.frombuffer(each[start:], ENTRY) for each in (before, after))
    slot, slot_now = (each["key_hash"].astype(np.int64) % GEOMETRY.slots for each in (entries, entries_now))
    differs = entries.view("V20") != entries_now.view("V20")
    hidden = (entries["key_hash"] != entries_now["key_hash"]) & (slot == slot_now)
    damaged = {*np.flatnonzero(slots != slots_now).tolist(), *slot[differs].tolist(), *slot_now[differs].tolist()}
    return Damage(bool(hidden.any()), damaged)


class Carried(NamedTuple):
    physical_offset: int
    topic: str
    key: str
    slot: int


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    path = tmp_path_factory.mktemp("mutated") / "store"
    return path, a_store(path)


def look_up(path: Path, topics: Sequence[str], keys: Sequence[str]) -> list[tuple[int, str]]:
    return sorted(pairs_of(Finder(Snapshot.open(path)).by_keys(topics, keys, KeyField.EITHER)))


@pytest.mark.parametrize("part", range(PARTS))
def test_damage_to_an_index_hides_nothing_and_invents_nothing(
    store: tuple[Path, list[Path]], part: int, report: Report
) -> None:
    path, files = store
    whole = {file: file.read_bytes() for file in files}
    records = every_record(path)
    carried = [
        Carried(record.physical_offset, record.topic, key, index_key_hash(record.topic, key) % GEOMETRY.slots)
        for record in records
        for key in sorted(record.keys | {record.unique or ""})
    ]
    every = sorted({each.key for each in carried} | set(KEYS))
    expected = brute_force(records, [(topic, key) for topic in TOPICS for key in every])
    spans = {file: decode_header(whole[file]) for file in files}
    believed = refused = left_out = 0
    for seed in range(part * CASES, (part + 1) * CASES):
        draw = np.random.default_rng([2022, seed])
        changed = {
            file: bytearray(whole[file]) for file in files if number(draw, 2) or file is files[seed % len(files)]
        }
        told = []
        for content in changed.values():
            for _ in range(1 + number(draw, 3)):
                damage = DAMAGES[number(draw, len(DAMAGES))]
                if content:
                    damage(content, draw)
                    told.append(damage.__name__)
        compare = [compared(whole[file], content) for file, content in changed.items()]
        if any(each.hidden for each in compare):
            left_out += 1
            continue
        for file, content in changed.items():
            file.write_bytes(content)
        case = f"seed {seed}: {told}"
        started = time.monotonic()
        aimed = [
            each
            for file, damage in zip(changed, compare, strict=True)
            for each in carried
            if each.slot in damage.slots
            and spans[file].begin_physical_offset < each.physical_offset < spans[file].end_physical_offset
        ]
        picked = [(aimed or carried)[at] for at in draw.integers(0, len(aimed or carried), CHAINS).tolist()]
        some = sorted({each.key for each in picked})
        assert look_up(path, TOPICS, every) == expected, case
        wanted = [(topic, key) for topic in TOPICS for key in some]
        assert look_up(path, TOPICS, some) == brute_force(records, wanted), case
        for _, topic, key, _ in picked[:SINGLES]:
            assert look_up(path, [topic], [key]) == brute_force(records, [(topic, key)]), f"{case}, {key!r} alone"
        assert time.monotonic() - started < SECONDS_MAX, case
        coverage = Finder(Snapshot.open(path)).by_keys(TOPICS, some).coverage
        assert coverage is not None
        used = {each.reason for each in coverage.ranges}
        believed += sum(str(file) in used for file in changed)
        refused += sum(str(file) not in used for file in changed)
        for file in changed:
            file.write_bytes(whole[file])
    report("damaged index files", f"{refused} not believed, {believed} not damaged in used parts, {left_out} left out")
    assert refused > CASES // 4
    assert believed > CASES // 20
    assert left_out < CASES // 2
