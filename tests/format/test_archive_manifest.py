import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.errors import CorruptError, UnsupportedStoreError
from segmentlog.store.format import archive_manifest
from segmentlog.store.format.archive_manifest import ArchivedFile, Manifest, PartName, PrunedQueue, manifest_key
from segmentlog.store.format.durable_point import FileSizes
from segmentlog.store.format.index_file import Geometry, IndexProof

from .test_archive_part import HUGE, SEGMENT, piece

FILES = ArchivedFile("config/topics.json", 3, "cd" * 32)
PARTS = (
    PartName(0, SEGMENT, 1, 2, 1_000, 2_000, 5_000, 4_000, "ab" * 32),
    PartName(SEGMENT, SEGMENT + 99, 1, 1, 1_001, 2_001, 900, 800, "ef" * 32),
)


PRUNED = PrunedQueue("größe", 3, 700)


def filled() -> Manifest:
    facts = {"id": "f00", "path": "/data/größe"}
    return Manifest(facts, piece(1, stop=SEGMENT + 99, rows=1), PARTS, (FILES,), pruned=(PRUNED,))


@pytest.mark.parametrize("manifest", [filled(), Manifest()])
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert Manifest.decode(manifest.encode(), "here") == manifest


def test_a_manifest_tells_where_it_begins_and_ends() -> None:
    assert (filled().start, filled().stop, Manifest().start, Manifest().stop) == (0, SEGMENT + 99, 0, 0)
    assert (filled().piece_count, Manifest().piece_count) == (2, 0)
    assert filled().files[0].key == "files/config/topics.json.cdcdcdcdcdcdcdcd"
    assert PARTS[0].key == f"parts/{0:020d}-{SEGMENT:020d}.abababababababab.part"
    assert manifest_key(12) == "manifests/0000000012.arrow"


def test_every_flipped_byte_and_every_truncation_is_an_error_with_its_place() -> None:
    data = filled().encode()
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            with pytest.raises(CorruptError, match="manifest") as caught:
                Manifest.decode(damaged, "s3://bucket/manifests/1")
            assert caught.value.path == "s3://bucket/manifests/1"


def test_a_manifest_that_needs_a_newer_reader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_manifest, "VERSION", 3)
    data = filled().encode()
    monkeypatch.undo()
    with pytest.raises(UnsupportedStoreError, match="needs a reader of format 3, and this release reads 2"):
        Manifest.decode(data, "here")


def with_column(name: str, values: pa.Array | None, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return a manifest of another release, in which a column is another one, added, or not there."""
    whole = archive_manifest.sealed

    def changed(magic: bytes, version: int, row: pa.RecordBatch) -> bytes:
        columns = dict(zip(row.schema.names, row.columns, strict=True)) | {name: values}
        columns = {each: column for each, column in columns.items() if column is not None}
        return whole(
            magic,
            version,
            pa.RecordBatch.from_arrays(
                [*columns.values()],
                schema=pa.schema([pa.field(each, column.type, nullable=False) for each, column in columns.items()]),
            ),
        )

    monkeypatch.setattr(archive_manifest, "sealed", changed)
    data = filled().encode()
    monkeypatch.undo()
    return data


def test_columns_that_a_later_release_added_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Manifest.decode(with_column("colour", pa.array(["red"]), monkeypatch), "here") == filled()


def test_the_first_manifests_of_the_format_state_no_pruned_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Manifest.decode(with_column("pruned", None, monkeypatch), "here") == replace(filled(), pruned=())
    with pytest.raises(CorruptError, match="it has no column files of its type"):
        Manifest.decode(with_column("files", None, monkeypatch), "here")


def test_a_feature_that_is_not_known_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    data = with_column("features", pa.array([["encrypted"]], pa.list_(pa.string())), monkeypatch)
    with pytest.raises(UnsupportedStoreError, match="format 2 with 'encrypted', and this release reads 2"):
        Manifest.decode(data, "here")


HOSTILE_PARTS: tuple[dict[str, Any], ...] = (
    *({"start": value} for value in (-1, SEGMENT, HUGE)),
    *({"stop": value} for value in (0, -1, SEGMENT + 1, HUGE)),
    *({"pieces": value} for value in (0, -1, HUGE)),
    {"runs": -1},
    *({"size": value} for value in (-1, 3_999, HUGE)),
    *({"head_size": value} for value in (-1, 0, 15, 5_001, HUGE)),
    *({"digest": value} for value in ("", "../../x", "g" * 64, "a" * 63)),
)
HOSTILE_NAMES = (
    *("config/../../x", "../x", "/etc/x", "config//x", "config/./x", ".", "", "config/", "config/a\0b", "a/..", "/"),
)
HOSTILE_FACTS = (
    *(("sizes", value) for value in ("[]", "{", "null", "[1, 2, 3, -1]", f"[1, 2, 3, {1 << 31}]", "[" * 100_000)),
    *(("damage", value) for value in ("1", "[1]", "[[1, 2, 3]]", "[[-1, 2]]", '["ab"]', "{}]", "[[true, 2]]")),
    *(("pushed_ms", value) for value in ("", "-1", "x", "9" * 5_000, "1, 2")),
)


@pytest.mark.parametrize("change", HOSTILE_PARTS)
def test_a_part_with_an_impossible_value_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptError, match="impossible name or number") as caught:
        rewritten(replace(filled(), parts=(PARTS[0]._replace(**change), PARTS[1])))
    assert caught.value.path == "s3://bucket/manifests/1"


@pytest.mark.parametrize("change", [{"queue_id": -1}, {"max_offset": 0}, {"max_offset": -1}, {"max_offset": HUGE}])
def test_a_pruned_queue_with_an_impossible_number_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(CorruptError, match="pruned queue 1 of 2 has an impossible name or number"):
        rewritten(replace(filled(), pruned=(PRUNED._replace(queue_id=0), PRUNED._replace(**change))))


def test_a_pruned_queue_that_is_named_twice_is_refused() -> None:
    with pytest.raises(CorruptError, match="it names a pruned queue twice"):
        rewritten(replace(filled(), pruned=(PRUNED, PRUNED._replace(max_offset=9))))


@pytest.mark.parametrize("path", HOSTILE_NAMES)
def test_a_file_with_a_name_outside_of_its_directory_is_refused(path: str) -> None:
    with pytest.raises(CorruptError, match="file 1 of 2 has an impossible name"):
        rewritten(replace(filled(), files=(FILES, FILES._replace(path=path))))


@pytest.mark.parametrize(("name", "value"), HOSTILE_FACTS)
def test_a_fact_about_the_store_that_is_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(CorruptError, match="the manifest cannot be read"):
        rewritten(replace(filled(), store={name: value}))


PROOF = IndexProof(10, 20, 9, 100, 900, ((200, 70_000), (300, 80_000)))
INDEX = ArchivedFile("index/20261129000000000", Geometry(10, 20).file_bytes, "ab" * 32)


def test_proofs_of_index_files_are_those_of_files_that_the_archive_has() -> None:
    facts = {"proofs": json.dumps({INDEX.path: PROOF, "index/20261129000000001": PROOF})}
    assert rewritten(replace(filled(), store=facts, files=(FILES, INDEX))).proofs == {INDEX.path: PROOF}
    assert Manifest().proofs == {}


@pytest.mark.parametrize(
    "value",
    [
        *("[]", "7", '"text"', "{}", "[1, 2]", "[10, 20, 9, 100, 900, 5]", "[10, 20, 9, 100, 900, [[1]]]"),
        *("[0, 20, 9, 100, 900, []]", "[10, 21, 9, 100, 900, []]", "[10, 20, 21, 100, 900, []]"),
        *("[10, 20, 1, 100, 900, []]", "[10, 20, 9, 901, 900, []]", "[10, 20, 9, -1, 900, []]"),
        *("[10, 20, 9, 100, 900, [[1, -1]]]", f"[{1 << 40}, 20, 9, 100, 900, []]"),
    ],
)
def test_a_proof_that_the_file_cannot_have_is_refused(value: str) -> None:
    with pytest.raises(CorruptError, match="the manifest cannot be read"):
        rewritten(replace(filled(), store={"proofs": f'{{"{INDEX.path}": {value}}}'}, files=(INDEX,)))


def test_lists_that_contradict_each_other_are_refused() -> None:
    manifest = filled()
    for hostile in (
        replace(manifest, parts=PARTS[::-1]),
        replace(manifest, parts=PARTS[:1]),
        replace(manifest, parts=()),
        replace(manifest, last=None),
        replace(manifest, last=piece(0)),
        replace(manifest, files=(FILES, FILES)),
        replace(manifest, files=(FILES._replace(size=-1),)),
        replace(manifest, files=(FILES._replace(digest="../x"),)),
    ):
        with pytest.raises(CorruptError, match="the manifest cannot be read"):
            rewritten(hostile)


def test_facts_about_the_store_are_read_as_they_were_written() -> None:
    facts = {"sizes": "[1048576, 100, 50, 600]", "index": "true", "damage": "[[8, 9], [10, 20]]", "pushed_ms": "17"}
    known = rewritten(replace(filled(), store={**facts, "cuts": "3"}))
    assert (known.sizes, known.has_index) == (FileSizes(1_048_576, 100, 50, 600), True)
    assert (known.damage, known.pushed_ms, known.cuts) == ([(8, 9), (10, 20)], 17, 3)
    empty = Manifest()
    assert (empty.sizes, empty.has_index, empty.damage, empty.pushed_ms) == (FileSizes(), False, [], 0)
    assert empty.cuts is None


def test_a_dledger_log_asks_for_a_reader_that_knows_it() -> None:
    manifest = replace(filled(), store={"dledger": "n1"}, last=piece(1, stop=SEGMENT + 99, rows=1)._replace(lead=48))
    known = rewritten(manifest)
    assert (known, known.dledger_id) == (manifest, "n1")
    asked = [pa.ipc.open_stream(each.encode()[16:]).read_all()["features"].to_pylist() for each in (known, filled())]
    assert asked == [[["dledger"]], [[]]]
    for facts in ({}, {"dledger": "../../x"}, {"dledger": "n0/data"}):
        with pytest.raises(CorruptError, match="the manifest cannot be read"):
            rewritten(replace(manifest, store=facts))


def rewritten(manifest: Manifest) -> Manifest:
    """Write a manifest and read it."""
    return Manifest.decode(manifest.encode(), "s3://bucket/manifests/1")


def test_a_manifest_of_many_parts_is_short() -> None:
    noise = np.random.default_rng(1)
    parts = tuple(PartName(at, at + 1, 1, 1, at, at, 5_000, 4_000, noise.bytes(32).hex()) for at in range(100))
    assert len(replace(filled(), parts=parts).encode()) < 20_000
