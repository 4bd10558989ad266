"""Look-ups of all keys of a store at once, where slots, hashes and topics collide: complete, and nothing else.

A hundred thousand messages, a million in a soak; a look-up asks for more keys than it has messages.
"""

import time
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import StoreReader
from segmentlog.store.find import Finder, KeyField
from support.indexed_stores import colliding
from support.planted_keys import TOPICS, Planted, own_key, plant
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

COUNT = scale(20_000, 100_000, 1_000_000)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    path = tmp_path_factory.mktemp("planted") / "store"
    return path, plant(path, COUNT)


def test_every_key_finds_exactly_its_messages(planted: tuple[Path, Planted], report: Report) -> None:
    path, stored = planted
    keys = [own_key(number) for number in range(COUNT + 3)]
    keys += [colliding(key) for key in keys[::5]]
    keys += ["hot", *(f"u-{number:08d}" for number in range(0, COUNT, 9))]
    finder = Finder(StoreReader.open(path))
    started = time.monotonic()
    found = finder.by_keys(TOPICS, keys, KeyField.EITHER)
    seconds = time.monotonic() - started
    topics, texts = found.asked["topic"].to_pylist(), found.asked["key"].to_pylist()
    expected = sorted(
        (stored.physical_offset[number], row)
        for row, pair in enumerate(zip(topics, texts, strict=True))
        for number in stored.carriers.get(pair, [])
    )
    assert len(expected) > COUNT
    assert np.array_equal(np.stack([found.physical_offset, found.asked_index], axis=1), np.array(expected))
    coverage = found.coverage
    assert coverage is not None
    assert coverage.scanned_bytes < 4096
    report("keys looked up, hits, seconds", (found.asked.num_rows, len(found), round(seconds, 2)))
