import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import Snapshot
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.find import Finder
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import Geometry, IndexProof
from segmentlog.store.format.message import Bytes
from segmentlog.store.index import proof as proofs
from segmentlog.store.index.proof import proof_of, proven_table
from segmentlog.store.index.table import look_up, open_table
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.maintenance.rebuild import write_index as write_repaired_index
from support.distant_files import DistantFiles
from support.dledger import write_log, write_store
from support.indexed_stores import Row, build, entry_bytes, write_index
from support.memory_objects import MemoryObjects
from support.tampering import put_at

GEOMETRY = Geometry(211, 2000)
KEYS = [f"a{number}" for number in range(41)]


class Counted(DistantFiles):
    """Counts the bytes that are read."""

    def __init__(self, window_bytes: int | None) -> None:
        super().__init__(window_bytes)
        self.bytes = 0

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        found = super().map(path, start, stop)
        self.bytes += found.size
        return found


def write(store: Path, geometry: Geometry = GEOMETRY) -> Path:
    build(store, [Row("T", f"a{number % 40} b{number}", f"U{number}") for number in range(500)])
    (file,) = write_index(store, geometry)
    return file


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    return write(tmp_path / "store")


def proven(file: Path) -> IndexProof | None:
    log = CommitLog(LocalFileSystem(), [str(file.parents[1] / "commitlog")])
    return proof_of(log, str(file), np.fromfile(file, np.uint8))


@pytest.mark.parametrize("window_bytes", [16, 1 << 20])
def test_a_proven_file_answers_as_a_checked_one_from_some_of_its_bytes(indexed: Path, window_bytes: int) -> None:
    proof, checked, fs = proven(indexed), open_table(LocalFileSystem(), str(indexed)), Counted(window_bytes)
    assert proof is not None
    assert checked is not None
    table = proven_table(fs, str(indexed), proof)
    assert (table.count, table.first, table.last) == (checked.count, checked.first, checked.last)
    assert table.jumps.tolist() == checked.jumps.tolist()
    for key in KEYS:
        hashes = np.array([index_key_hash("T", key)])
        found, expected = look_up(table, hashes), look_up(checked, hashes)
        assert sorted(found.physical_offset.tolist()) == sorted(expected.physical_offset.tolist())
        if key == KEYS[0]:
            assert fs.bytes < indexed.stat().st_size / 20 if window_bytes == 16 else fs.bytes == indexed.stat().st_size
    hashes = np.unique([index_key_hash("T", f"b{number}") for number in range(500)])
    assert sorted(look_up(table, hashes).physical_offset) == sorted(look_up(checked, hashes).physical_offset)
    assert fs.bytes < 3 * indexed.stat().st_size  # ranges, until they cost as much as the file; then the file, once


def test_a_long_chain_is_not_followed_for_more_than_the_file_costs(tmp_path: Path) -> None:
    build(tmp_path / "store", [Row("T", "hot", f"U{number}") for number in range(900)])
    (file,) = write_index(tmp_path / "store", GEOMETRY)
    proof, fs = proven(file), Counted(16)
    assert proof is not None
    found = look_up(proven_table(fs, str(file), proof), np.array([index_key_hash("T", "hot")]))
    assert found.physical_offset.size == 900
    assert fs.bytes < 2 * file.stat().st_size


def test_a_damaged_file_and_that_of_another_log_have_no_proof(indexed: Path, tmp_path: Path) -> None:
    assert proven(indexed) is not None
    build(tmp_path / "other", [Row("T", f"c{number}", f"V{number}", body_bytes=9) for number in range(500)])
    other = CommitLog(LocalFileSystem(), [str(tmp_path / "other" / "commitlog")])
    assert proof_of(other, str(indexed), np.fromfile(indexed, np.uint8)) is None
    put_at(indexed, entry_bytes(GEOMETRY, 400, "previous"), b"\0\0\0\1")
    assert proven(indexed) is None


def test_a_file_with_many_distant_neighbours_has_no_proof(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.index.table.JUMP_BYTES", 1)
    monkeypatch.setattr(proofs, "_JUMPS_MAX", 500)
    proof = proven(indexed)
    assert proof is not None
    assert len(proof.jumps) == 499
    monkeypatch.setattr(proofs, "_JUMPS_MAX", 498)
    assert proven(indexed) is None


def archived(store: Path) -> tuple[MemoryObjects, str]:
    objects = MemoryObjects()
    objects.gap_bytes = 64
    push(store, objects)
    (key,) = (key for key in objects.objects if key.startswith("files/index/"))
    return objects, key


def test_a_look_up_in_an_archive_reads_some_of_its_index_and_knows_what_is_missing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, Geometry(2110, 20_000))
    objects, key = archived(store)
    for asked, count in (("b77", 1), ("a7", 13), ("nothing", 0)):
        finder = Finder(Snapshot.open(StoreLocation.on_objects(objects)))
        objects.bytes_read = 0
        found = finder.by_keys(["T"], [asked])
        assert len(found.physical_offset) == count
        assert found.coverage is not None
        assert found.coverage.indexed_bytes > 50_000
        assert objects.bytes_read < len(objects.objects[key][0]) / 4


def test_a_damaged_object_of_an_index_costs_a_scan_and_hides_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store)
    objects, key = archived(store)
    data, info = objects.objects[key]
    changed = bytearray(data)
    for number in range(1, 1501):
        at = entry_bytes(GEOMETRY, number, "previous")
        changed[at : at + 4] = (1999).to_bytes(4, "big")
    objects.objects[key] = bytes(changed), info
    finder = Finder(Snapshot.open(StoreLocation.on_objects(objects)))
    for _ in range(2):
        found = finder.by_keys(["T"], ["a7"])
        assert len(found.physical_offset) == 13
        assert found.coverage is not None
        assert found.coverage.indexed_bytes == 0
        assert any("damaged chain" in each.reason for each in found.coverage.ranges)


def write_group_store(path: Path, replaced: range) -> Path:
    """Write a DLedger store, then some of its messages again, by a new leader; its index has the former ones."""
    entries = write_store(path, rows=700)
    write_repaired_index(Snapshot.open(path), path / "index", GEOMETRY)
    terms = [replace(each, term=2) if each.index >= replaced.start else each for each in entries]
    for number in replaced:
        record = entries[number].record.replace(b"k%d" % number, b"x%d" % number)
        terms[number] = replace(terms[number], record=record)
    write_log(path, terms, 4096, len(terms) - 1)
    return path


@pytest.mark.parametrize("key", ["k289", "k290", "x290", "x292", "k294"])
def test_keys_of_dledger_entries_that_replaced_indexed_ones_are_found(tmp_path: Path, key: str) -> None:
    found = Finder(Snapshot.open(write_group_store(tmp_path / "s", range(290, 293)))).by_keys(["orders"], [key])
    assert len(found.physical_offset) == (key != "k290")


@pytest.mark.parametrize("has_rows", [True, False])
def test_an_index_file_of_a_dledger_log_is_believed_if_the_begin_of_each_term_is_in_it(
    tmp_path: Path, *, has_rows: bool
) -> None:
    store = write_group_store(tmp_path / "s", range(290, 290))
    if not has_rows:  # then nothing tells where terms begin
        shutil.rmtree(store / "dledger-n0" / "index")
    found = Finder(Snapshot.open(store)).by_keys(["orders"], ["k291"])
    assert len(found.physical_offset) == 1
    assert found.coverage is not None
    assert (found.coverage.scanned_bytes < 1000) is has_rows  # before its first record, and after its last one
