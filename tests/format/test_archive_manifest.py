import numpy as np
import pytest

from segmentlog.store.errors import CorruptError, UnsupportedStoreError
from segmentlog.store.format.archive_manifest import RUN, ArchivedFile, ArchivedQueue, Manifest, Piece, manifest_key

SEGMENT = 1 << 20


def piece(at: int, *, stop: int = 0) -> Piece:
    base = at * SEGMENT
    return Piece(base, SEGMENT, base, stop or base + SEGMENT, 10, 1_000 + at, 2_000 + at, f"{at:064x}", 320, "ab" * 32)


def filled() -> Manifest:
    runs = np.zeros(3, RUN)
    runs["piece"], runs["queue"], runs["last_offset"], runs["rises"] = [0, 0, 1], [0, 1, 1], 1 << 40, [1, 0, 1]
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


def test_a_manifest_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.format.archive_manifest.VERSION", 2)
    data = filled().encode()
    monkeypatch.undo()
    with pytest.raises(UnsupportedStoreError, match="has version 2, and this release reads 1"):
        Manifest.decode(data, "here")


@pytest.mark.slow
@pytest.mark.scaled(quick=0)
def test_a_manifest_of_10_000_pieces_and_a_million_runs_is_read_as_it_was_written() -> None:
    runs = np.zeros(1_000_000, RUN)
    runs["piece"], runs["first"] = np.arange(runs.size) // 100, np.arange(runs.size)
    queues = tuple(ArchivedQueue(f"topic-{at % 100}", at // 100) for at in range(10_000))
    large = Manifest({"id": "f00"}, tuple(map(piece, range(10_000))), queues, runs)
    data = large.encode()
    assert len(data) < 8 << 20
    assert same(Manifest.decode(data, "here"), large)
