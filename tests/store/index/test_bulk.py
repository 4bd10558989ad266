"""Bulk look-ups in one index file: every entry of every hash once, whatever the chains look like."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.index_file import ENTRY, Geometry
from segmentlog.store.index import bulk
from segmentlog.store.index.bulk import look_up, sorted_rows
from segmentlog.store.index.table import IndexTable, open_table
from segmentlog.store.index.writer import IndexWriter
from support.crash.memory_fs import MemoryFileSystem


def table_of(hashes: list[int], slots: int, fs: WritableFileSystem | None = None) -> IndexTable:
    """Index records that are 100 bytes apart, of one key each."""
    fs = fs or MemoryFileSystem()
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


def found(table: IndexTable, asked: list[int]) -> list[tuple[int, int]]:
    wanted = np.array(sorted(asked), np.int64)
    candidates = look_up(table, wanted)
    return sorted(zip(wanted[candidates.which].tolist(), candidates.physical_offset.tolist(), strict=True))


def expected(hashes: list[int], asked: list[int]) -> list[tuple[int, int]]:
    return sorted((each, 100 * number) for number, each in enumerate(hashes, 1) if each in asked)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=300),
    st.sets(st.integers(0, 45)),
    st.sampled_from([1, 3, 17, 1000]),
    st.sampled_from([1, 2, 5, 256]),
)
def test_all_entries_of_all_hashes_are_found(hashes: list[int], asked: set[int], slots: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "GENERATIONS_MAX", most)
        patch.setattr(bulk, "_BLOCK_ENTRIES", 7)
        assert found(table_of(hashes, slots), list(asked)) == expected(hashes, list(asked))


@pytest.mark.parametrize(
    ("slots", "asked"), [(1, [2]), (2, [2, 5]), (1, [2, 5, 9])], ids=["one chain", "two", "more keys than slots"]
)
def test_chains_longer_than_generations_are_compared_whole(slots: int, asked: list[int]) -> None:
    # 2 is three times as frequent as 5: its chain is left at a later entry than that of 5.
    hashes = [(2, 2, 5, 2)[each % 4] for each in range(20 * bulk.GENERATIONS_MAX)]
    assert found(table_of(hashes, slots), asked) == expected(hashes, asked)


def test_no_hash_finds_nothing() -> None:
    assert found(table_of([1, 2, 3], 5), []) == []


@pytest.mark.parametrize("link", [4, 5, 90, -3, 1 << 30], ids=["itself", "forward", "beyond", "negative", "far beyond"])
def test_a_link_that_breaks_after_the_check_ends_its_chain(link: int, tmp_path: Path) -> None:
    table = table_of([7, 7, 7, 7, 7], 1)
    entries = np.array(table.entries)
    entries["previous"][4] = link
    broken = replace(table, path=str(tmp_path), entries=entries.view(ENTRY))
    assert found(broken, [7]) == [(7, 400), (7, 500)]


@given(st.lists(st.integers(-3, 3) | st.integers(0, 1 << 31) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=40))
def test_numbers_are_sorted_with_their_places(numbers: list[int]) -> None:
    order, ascending = sorted_rows(np.array(numbers, np.int64))
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert order.tolist() == expected
    assert ascending.tolist() == [numbers[row] for row in expected]
