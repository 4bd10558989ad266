from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from segmentlog.store.errors import CorruptError, UnsupportedStoreError
from segmentlog.store.format.archive_manifest import RUN, ArchivedFile, ArchivedQueue, Manifest, Piece, manifest_key
from segmentlog.store.format.durable_point import FileSizes

SEGMENT = 1 << 20


def piece(at: int, *, stop: int = 0) -> Piece:
    base = at * SEGMENT
    rows = 1 if stop else 10
    digests = f"{at:064x}", 32 * rows, "ab" * 32
    return Piece(base, SEGMENT, base, stop or base + SEGMENT, rows, 1_000 + at, 2_000 + at, *digests)


def filled() -> Manifest:
    runs = np.zeros(3, RUN)
    runs["piece"], runs["queue"], runs["row"], runs["rows"] = [0, 0, 1], [0, 1, 1], [0, 9, 0], [9, 1, 1]
    runs["last"], runs["first_offset"], runs["rises"] = [8, -1, 0], [0, 0, SEGMENT], [1, 0, 1]
    runs["last_offset"] = runs["first_offset"] + 8
    return Manifest(
        {"id": "f00", "path": "/data/größe"},
        (piece(0), piece(1, stop=SEGMENT + 99)),
        (ArchivedQueue("orders", 0), ArchivedQueue("größer", 3)),
        runs,
        (ArchivedFile("config/topics.json", 3, "cd" * 32),),
    )


def same(one: Manifest, other: Manifest) -> bool:
    fields = ("store", "pieces", "queues", "files")
    return all(getattr(one, name) == getattr(other, name) for name in fields) and np.array_equal(one.runs, other.runs)


@pytest.mark.parametrize("manifest", [filled(), Manifest()])
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert same(Manifest.decode(manifest.encode(), "here"), manifest)


def test_the_names_of_objects_state_content_and_place() -> None:
    first, growing = filled().pieces
    assert first.key == f"log/{0:020d}/{0:020d}-{SEGMENT:020d}.0000000000000000"
    assert growing.pack_key.startswith(f"queues/{SEGMENT:020d}/{SEGMENT:020d}-{SEGMENT + 99:020d}.abab")
    assert (first.is_last, growing.is_last) == (True, False)
    assert (filled().start, filled().stop, Manifest().start, Manifest().stop) == (0, SEGMENT + 99, 0, 0)
    assert filled().files[0].key == "files/config/topics.json.cdcdcdcdcdcdcdcd"
    assert manifest_key(12) == "manifests/0000000012.arrow"


def test_every_flipped_byte_and_every_truncation_is_an_error_with_its_place() -> None:
    data = filled().encode()
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            with pytest.raises(CorruptError, match="manifest") as caught:
                Manifest.decode(damaged, "s3://bucket/manifests/1")
            assert caught.value.path == "s3://bucket/manifests/1"


def test_a_manifest_of_a_newer_version_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.format.archive_manifest.VERSION", 2)
    data = filled().encode()
    monkeypatch.undo()
    with pytest.raises(UnsupportedStoreError, match="has version 2, and this release reads 1"):
        Manifest.decode(data, "here")


HUGE, FILES = (1 << 63) - 1, ArchivedFile("config/topics.json", 3, "cd" * 32)
HOSTILE_PIECES: tuple[dict[str, Any], ...] = (
    *({"segment": value} for value in (-SEGMENT, 1, HUGE)),
    *({"segment_size": value} for value in (0, -1, 1 << 31, HUGE)),
    *({"start": value} for value in (-1, 2 * SEGMENT, HUGE)),
    *({"stop": value} for value in (0, SEGMENT + 1, -1, HUGE)),
    *({"records": value} for value in (-1, SEGMENT, HUGE)),
    *({"pack_size": value} for value in (-32, 319, 352, 1 << 50, HUGE)),
    *({name: value} for name in ("digest", "pack_digest") for value in ("", "../../x", "g" * 64, "a" * 63)),
)
HOSTILE_RUNS = (
    *(("piece", value) for value in (-1, 2)),
    *(("queue", value) for value in (-1, 1, 2)),
    *(("row", value) for value in (-1, 3, HUGE)),
    *(("rows", value) for value in (0, -1, 10, HUGE)),
    *(("first", value) for value in (-1, 1, HUGE)),
    *(("first_offset", value) for value in (-1, 9, HUGE)),
    *(("last_offset", value) for value in (-1, SEGMENT, HUGE)),
    *(("bytes", value) for value in (-1, HUGE)),
)
HOSTILE_NAMES = (
    *("config/../../x", "../x", "/etc/x", "config//x", "config/./x", ".", "", "config/", "config/a\0b", "a/..", "/"),
)
HOSTILE_FACTS = (
    *(("sizes", value) for value in ("[]", "{", "null", "[1, 2, 3, -1]", f"[1, 2, 3, {1 << 31}]", "[" * 100_000)),
    *(("damage", value) for value in ("1", "[1]", "[[1, 2, 3]]", "[[-1, 2]]", '["ab"]', "{}]", "[[true, 2]]")),
    *(("pushed_ms", value) for value in ("", "-1", "x", "9" * 5_000, "1, 2")),
)


@pytest.mark.parametrize("change", HOSTILE_PIECES)
def test_a_piece_with_an_impossible_value_is_rewritten(change: dict[str, Any]) -> None:
    manifest = filled()
    first, other = manifest.pieces
    with pytest.raises(CorruptError, match=r"impossible name or number|other rows") as caught:
        rewritten(replace(manifest, pieces=(first._replace(**change), other)))
    assert caught.value.path == "s3://bucket/manifests/1"


@pytest.mark.parametrize(("name", "value"), HOSTILE_RUNS)
def test_a_run_with_an_impossible_value_is_rewritten(name: str, value: int) -> None:
    manifest = filled()
    manifest.runs[name][0] = value
    with pytest.raises(CorruptError, match=r"impossible name or number: |other rows"):
        rewritten(manifest)


@pytest.mark.parametrize("path", HOSTILE_NAMES)
def test_a_file_with_a_name_outside_of_its_directory_is_rewritten(path: str) -> None:
    with pytest.raises(CorruptError, match="file 1 of 2 has an impossible name"):
        rewritten(replace(filled(), files=(FILES, FILES._replace(path=path))))


@pytest.mark.parametrize(("name", "value"), HOSTILE_FACTS)
def test_a_fact_about_the_store_that_is_no_number_is_rewritten(name: str, value: str) -> None:
    with pytest.raises(CorruptError, match="the manifest cannot be read"):
        rewritten(replace(filled(), store={name: value}))


def test_lists_that_contradict_each_other_are_rewritten() -> None:
    manifest = filled()
    first, other = manifest.pieces
    for hostile in (
        replace(manifest, pieces=(other, first)),
        replace(manifest, pieces=(first, first)),
        replace(manifest, pieces=(first,)),
        replace(manifest, queues=(manifest.queues[0],) * 2),
        replace(manifest, runs=manifest.runs[::-1]),
        replace(manifest, runs=manifest.runs[1:]),
        replace(manifest, files=(FILES, FILES)),
        replace(manifest, files=(FILES._replace(size=-1),)),
        replace(manifest, files=(FILES._replace(digest="../x"),)),
    ):
        with pytest.raises(CorruptError, match="the manifest cannot be read"):
            rewritten(hostile)


def test_facts_about_the_store_are_read_as_they_were_written() -> None:
    facts = {"sizes": "[1048576, 100, 50, 600]", "index": "true", "damage": "[[8, 9], [10, 20]]", "pushed_ms": "17"}
    known = rewritten(replace(filled(), store=facts))
    assert (known.sizes, known.has_index) == (FileSizes(1_048_576, 100, 50, 600), True)
    assert (known.damage, known.pushed_ms) == ([(8, 9), (10, 20)], 17)
    assert (Manifest().sizes, Manifest().has_index, Manifest().damage, Manifest().pushed_ms) == (
        FileSizes(),
        False,
        [],
        0,
    )


def rewritten(manifest: Manifest) -> Manifest:
    """Write a manifest and read it."""
    return Manifest.decode(manifest.encode(), "s3://bucket/manifests/1")


@pytest.mark.slow
@pytest.mark.scaled(quick=0)
def test_a_manifest_of_10_000_pieces_and_a_million_runs_is_read_as_it_was_written() -> None:
    runs = np.zeros(1_000_000, RUN)
    runs["piece"], runs["queue"] = np.divmod(np.arange(runs.size), 100)
    runs["row"], runs["rows"], runs["first"] = runs["queue"], 1, np.arange(runs.size)
    runs["first_offset"] = runs["last_offset"] = runs["piece"].astype(np.int64) * SEGMENT
    queues = tuple(ArchivedQueue(f"topic-{at % 100}", at // 100) for at in range(10_000))
    pieces = tuple(piece(at)._replace(pack_size=3_200) for at in range(10_000))
    large = Manifest({"id": "f00"}, pieces, queues, runs)
    data = large.encode()
    assert len(data) < 8 << 20
    assert same(Manifest.decode(data, "here"), large)
