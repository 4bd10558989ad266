"""Entries of one hash in an unchecked file: those of its chain, or an error."""

from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.errors import FormatError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import ENTRY, Geometry
from segmentlog.store.index.bulk import look_up
from segmentlog.store.index.listing import list_entries
from segmentlog.store.index.table import open_table
from support.indexed_stores import Row, build, colliding, entry_bytes, write_index
from support.scale import scale

GEOMETRY = Geometry(17, 400)
KEYS = ["key-7", "key-8", colliding("key-30"), "hot", "u-11", "nothing"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        Row("T", f"key-{i} {'hot' if i % 3 else colliding(f'key-{i}')}", f"u-{i}", body_bytes=8 + i % 2)
        for i in range(120)
    ]
    rows.insert(60, Row("T", "large", None, body_bytes=1 << 17))
    build(tmp_path / "store", rows, segment_bytes=1 << 20)
    (file,) = write_index(tmp_path / "store", GEOMETRY)
    return file


def overwrite(file: Path, position: int, content: bytes) -> None:
    data = bytearray(file.read_bytes())
    data[position : position + len(content)] = content
    file.write_bytes(data)


@pytest.mark.parametrize("key", KEYS)
def test_equal_to_a_look_up_in_the_checked_file(file: Path, key: str) -> None:
    fs, key_hash = LocalFileSystem(), index_key_hash("T", key)
    table, listing = open_table(fs, str(file)), list_entries(fs, str(file), key_hash)
    assert table is not None
    assert listing is not None
    expected = look_up(table, np.array([key_hash])).physical_offset
    assert listing.physical_offset.tolist() == sorted(expected.tolist())
    assert (listing.physical_offset.size > 0) == (key != "nothing")
    for name in ("geometry", "count", "first", "last"):
        assert getattr(listing.table, name) == getattr(table, name)
    assert listing.table.jumps.tolist() == table.jumps.tolist() != []


@pytest.mark.scaled
@pytest.mark.parametrize("field", ENTRY.names)
@pytest.mark.parametrize("value", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x01"])
def test_no_damaged_entry_hides_a_record(file: Path, field: str, value: bytes) -> None:
    """Each field of the entries in turn: the entries of a key are all found, or the file is not believed."""
    fs, whole = LocalFileSystem(), file.read_bytes()
    key_hash = index_key_hash("T", "key-30")
    listing = list_entries(fs, str(file), key_hash)
    assert listing is not None
    expected, refused = set(listing.physical_offset.tolist()), 0
    for number in range(1, listing.table.count, scale(5, 1, 1)):
        overwrite(file, entry_bytes(GEOMETRY, number, field), value)
        try:
            found = list_entries(fs, str(file), key_hash)
        except FormatError:
            refused += 1
        else:
            assert found is not None
            missing = expected - set(found.physical_offset.tolist())
            # An offset that is still in order is the record's to deny.
            assert not missing or field == "physical_offset"
        file.write_bytes(whole)
    is_same = field == "physical_offset" and value == bytes(4)  # the upper half of all offsets here
    assert refused or field == "seconds" or is_same


def test_a_slot_that_was_zeroed_hides_nothing(file: Path) -> None:
    key_hash = index_key_hash("T", "key-30")
    overwrite(file, 40 + 4 * (key_hash % GEOMETRY.slots), bytes(4))
    with pytest.raises(FormatError, match=r"the chain of slot \d+ does not have") as caught:
        list_entries(LocalFileSystem(), str(file), key_hash)
    assert caught.value.path == str(file)


def test_a_cycle_ends(file: Path) -> None:
    for number in range(1, 240):
        overwrite(file, entry_bytes(GEOMETRY, number, "previous"), (number + 1).to_bytes(4, "big"))
    with pytest.raises(FormatError, match="leads to an entry that cannot be its next one"):
        list_entries(LocalFileSystem(), str(file), index_key_hash("T", "key-30"))


def test_entries_that_a_broker_has_not_counted_yet_are_no_damage(file: Path) -> None:
    fs, key_hash = LocalFileSystem(), index_key_hash("T", "key-30")
    whole = list_entries(fs, str(file), key_hash)
    assert whole is not None
    overwrite(file, 36, (whole.table.count - 3).to_bytes(4, "big"))
    fewer = list_entries(fs, str(file), key_hash)
    assert fewer is not None
    assert fewer.table.count == whole.table.count - 3
    assert fewer.physical_offset.tolist() == whole.physical_offset.tolist()


def test_a_file_without_entries_and_one_that_is_gone(file: Path) -> None:
    file.write_bytes(bytes(GEOMETRY.file_bytes))
    assert list_entries(LocalFileSystem(), str(file), 5) is None
    file.unlink()
    with pytest.raises(FileNotFoundError):
        list_entries(LocalFileSystem(), str(file), 5)
