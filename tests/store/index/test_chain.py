"""Walks of single chains: every entry of a hash once and newest first, damaged links included."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.format.index_file import ENTRY, SLOT, Geometry
from segmentlog.store.index import chain
from segmentlog.store.index.bulk import look_up
from segmentlog.store.index.chain import ChainWalk
from segmentlog.store.index.table import IndexTable, open_table
from segmentlog.store.index.writer import IndexWriter
from support.crash.memory_fs import MemoryFileSystem


def table_of(hashes: list[int], slots: int) -> IndexTable:
    """Index records that are 100 bytes apart, of one key each."""
    fs = MemoryFileSystem()
    fs.make_dir("/index")
    index = IndexWriter(fs, "/index", "/making", Geometry(slots, len(hashes) + 2))
    rows = np.arange(1, len(hashes) + 1, dtype=np.int64)
    index.put(np.array(hashes, np.int64), rows * 100, 1_700_000_000_000 + rows)
    index.write_slots()
    (name,) = index.names()
    index.close()
    table = open_table(fs, index.path_of(name))
    assert table is not None
    return table


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.sampled_from([1, 3, 17, 1000]))
def test_a_walk_finds_what_a_search_in_bulk_finds(hashes: list[int], slots: int) -> None:
    table = table_of(hashes, slots)
    walk = ChainWalk(table)
    for asked in range(42):
        in_bulk = look_up(table, np.array([asked], np.int64)).physical_offset.tolist()
        expected = [100 * number for number, each in enumerate(hashes, 1) if each == asked]
        assert walk.offsets(asked) == sorted(in_bulk, reverse=True) == expected[::-1]


@pytest.mark.parametrize("more", [0, 1])
def test_a_chain_of_too_many_entries_is_left_to_bulk(more: int) -> None:
    walk = ChainWalk(table_of([7, 8] * (chain.STEPS_MAX // 2) + [7] * more, 1))
    found = walk.offsets(7)
    assert (found is None) == bool(more)
    assert found is None or len(found) == chain.STEPS_MAX // 2


def broken(tmp_path: Path, link: int | None = None, slot: int | None = None) -> IndexTable:
    """Change the link of the fourth of five entries of one chain, or its slot, as if after the check."""
    table = table_of([7, 7, 7, 7, 7], 1)
    entries, slots = np.array(table.entries), np.array(table.slots)
    if link is not None:
        entries["previous"][4] = link
    if slot is not None:
        slots[0] = slot
    return replace(table, path=str(tmp_path), slots=slots.view(SLOT), entries=entries.view(ENTRY))


@pytest.mark.parametrize("link", [4, 5, 90, -3, 1 << 30], ids=["itself", "forward", "beyond", "negative", "far beyond"])
def test_a_link_that_breaks_after_the_check_ends_its_chain(link: int, tmp_path: Path) -> None:
    table = broken(tmp_path, link=link)
    assert ChainWalk(table).offsets(7) == [500, 400]
    assert sorted(look_up(table, np.array([7], np.int64)).physical_offset.tolist()) == [400, 500]


@pytest.mark.parametrize("slot", [-1, -(1 << 31), 7, (1 << 31) - 1])
def test_a_slot_out_of_range_leads_nowhere(slot: int, tmp_path: Path) -> None:
    table = broken(tmp_path, slot=slot)
    assert ChainWalk(table).offsets(7) == []
    assert look_up(table, np.array([7], np.int64)).physical_offset.tolist() == []
