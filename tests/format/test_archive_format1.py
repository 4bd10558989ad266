import contextlib
import zlib
from dataclasses import replace

import numpy as np
import pytest

from segmentlog.store.errors import CorruptError
from segmentlog.store.format.archive_manifest import ArchivedFile, Manifest
from segmentlog.store.format.archive_part import NO_TIME, Part
from support.archives import as_format1

from .test_archive_part import filled

FILE = ArchivedFile("config/topics.json", 3, "cd" * 32)
MANIFEST = Manifest({"id": "f00", "path": "/data/größe"}, files=(FILE,))


def bare(part: Part) -> Part:
    """The part as format 1 has it: packs without headers, runs without times."""
    assert part.runs is not None
    runs = part.runs.copy()
    runs["first_time"] = runs["last_time"] = NO_TIME
    pieces = tuple(
        each._replace(pack_start=0, pack_size=each.pack_size - each.pack_start, objects=each.objects[-1:])
        for each in part.pieces
    )
    return Part.of(pieces, part.queues, runs)


def test_a_manifest_of_format_1_is_read_as_one_part() -> None:
    part = bare(filled())
    read = Manifest.decode(as_format1(MANIFEST, part), "here")
    assert (read.store, read.files, read.last) == (MANIFEST.store, MANIFEST.files, part.pieces[-1])
    assert read.own_part is not None
    assert (read.own_part.pieces, read.own_part.queues) == (part.pieces, part.queues)
    assert np.array_equal(read.own_part.runs, part.runs)
    assert (read.start, read.stop, read.piece_count) == (part.pieces[0].start, part.pieces[-1].stop, 2)


def test_an_empty_manifest_of_format_1_is_read() -> None:
    read = Manifest.decode(as_format1(Manifest(), bare(filled(0))), "here")
    assert (read.start, read.stop, read.piece_count) == (0, 0, 0)


@pytest.mark.parametrize("name", ["piece", "queue", "rows", "row", "first_offset"])
def test_runs_that_contradict_the_lists_are_refused(name: str) -> None:
    part = bare(filled())
    assert part.runs is not None
    part.runs[name][0] = 1 << 20
    with pytest.raises(CorruptError, match=r"impossible name or number|other rows|other columns"):
        Manifest.decode(as_format1(MANIFEST, part), "here")


def test_lists_that_contradict_each_other_are_refused() -> None:
    part = bare(filled())
    for hostile in (
        replace(part, pieces=part.pieces[::-1]),
        replace(part, pieces=part.pieces[:1]),
        replace(part, queues=(part.queues[0],) * 2),
    ):
        with pytest.raises(CorruptError, match="the manifest cannot be read"):
            Manifest.decode(as_format1(MANIFEST, hostile), "here")


def test_every_flipped_byte_of_a_manifest_of_format_1_is_an_error_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = as_format1(MANIFEST, bare(filled()))
    monkeypatch.setattr(zlib, "crc32", lambda *_: 0)
    for at in range(16, len(data), 7):
        with contextlib.suppress(CorruptError):
            Manifest.decode(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], "here")
