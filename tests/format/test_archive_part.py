import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.errors import CorruptError
from segmentlog.store.format.archive_part import (
    BLOCK_RUNS,
    RUN,
    LogObject,
    Part,
    Piece,
    totals_of,
)

SEGMENT, HUGE = 1 << 20, (1 << 63) - 1
PLACE = "s3://bucket/parts/1"


def piece(at: int, *, stop: int = 0, rows: int = 10) -> Piece:
    base = at * SEGMENT
    end = stop or base + SEGMENT
    objects = (LogObject(base + 50, f"{at:064x}"), LogObject(end, "cd" * 32))
    return Piece(base, SEGMENT, base, rows, 1_000 + at, 2_000 + at, 32, 32 + 32 * rows, "ab" * 32, objects)


def filled(pieces: int = 2) -> Part:
    """Make a part with two queues in piece 0, and one of them in piece 1."""
    if not pieces:
        return Part.of((), (), np.empty(0, RUN))
    runs = np.zeros(3, RUN)
    runs["piece"], runs["queue"], runs["row"], runs["rows"] = [0, 0, 1], [1, 0, 0], [0, 9, 0], [9, 1, 1]
    runs["first"], runs["last"], runs["rises"] = [0, -1, 7], [8, -1, 7], [1, 0, 1]
    runs["first_offset"] = [0, 0, SEGMENT]
    runs["last_offset"] = runs["first_offset"] + 8
    runs["first_time"], runs["last_time"] = [1_000, 1_000, 1_001], [1_900, 1_000, 2_001]
    return Part.of((piece(0), piece(1, stop=SEGMENT + 99, rows=1)), [("größer", 3), ("orders", 0)], runs)


def rewritten(part: Part) -> Part:
    """Write a part and read it."""
    data, head_bytes = part.encode()
    return Part.decode(data[:head_bytes], PLACE).with_runs(data, PLACE)


def large(queues: int, pieces: int) -> Part:
    runs = np.zeros(queues * pieces, RUN)
    runs["queue"], runs["piece"] = np.divmod(np.arange(runs.size), pieces)
    runs["row"], runs["rows"], runs["first"] = runs["queue"], 1, runs["piece"]
    runs["last"], runs["rises"], runs["bytes"] = runs["first"], True, 100 + np.arange(runs.size)
    runs["first_offset"] = runs["last_offset"] = runs["piece"].astype(np.int64) * SEGMENT + 100 * runs["queue"]
    runs["first_time"] = runs["last_time"] = 1_000 + runs["piece"]
    listed = [piece(at, rows=queues)._replace(records=queues) for at in range(pieces)]
    return Part.of(listed, [(f"topic-{at // 8}", at % 8) for at in range(queues)], runs)


@pytest.mark.parametrize("part", [filled(), filled(0), large(700, 13)], ids=["filled", "empty", "large"])
def test_a_part_is_read_as_it_was_written(part: Part) -> None:
    read = rewritten(part)
    assert (read.pieces, read.queues) == (part.pieces, part.queues)
    assert np.array_equal(read.runs, part.runs)
    assert np.array_equal(read.totals, part.totals)
    assert read.run_count == part.run_count


def test_the_runs_of_some_queues_are_in_few_blocks() -> None:
    part = large(700, 13)
    assert part.runs is not None
    data, head_bytes = part.encode()
    head = Part.decode(data[:head_bytes], PLACE)
    assert head.blocks is not None
    assert head.blocks.size == -(-part.runs.size // BLOCK_RUNS)
    for queues in ([0], [699], [3, 4, 5], [0, 350, 699], range(700)):
        wanted = np.array(queues)
        blocks = head.blocks_of(wanted)
        assert blocks.size <= 1 + len(queues) or blocks.size == head.blocks.size
        spans = head.spans_of(blocks)
        found = np.concatenate(
            [head.runs_of_block(at, data[a:b], PLACE) for at, (a, b) in zip(blocks.tolist(), spans, strict=True)]
        )
        found = found[np.isin(found["queue"], wanted)]
        assert np.array_equal(found, part.runs[np.isin(part.runs["queue"], wanted)])


def test_statistics_are_those_of_the_runs() -> None:
    part = filled()
    assert [tuple(each) for each in part.queues] == [("größer", 3), ("orders", 0)]
    assert part.totals[["runs", "rows", "first", "last", "first_time", "last_time", "rises"]].tolist() == [
        (2, 2, -1, 7, 1_000, 2_001, False),
        (1, 9, 0, 8, 1_000, 1_900, True),
    ]
    whole = large(3, 4)
    assert whole.totals["rises"].all()
    assert whole.runs is not None
    whole.runs["first"][1] += 1 << 30  # more offsets than the log between two runs has room for
    whole.runs["last"][1] += 1 << 30
    assert totals_of(whole.runs, 3)["rises"].tolist() == [False, True, True]


def test_every_flipped_byte_and_every_truncation_is_an_error_with_its_place() -> None:
    data, head_bytes = filled().encode()
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            with pytest.raises(CorruptError, match="part") as caught:
                Part.decode(damaged[:head_bytes], PLACE).with_runs(damaged, PLACE)
            assert caught.value.path == PLACE


def test_leads_are_stored_where_a_piece_has_one() -> None:
    part = filled()
    led = replace(part, pieces=(part.pieces[0], part.pieces[1]._replace(lead=48)))
    assert [each.lead for each in rewritten(led).pieces] == [0, 48]
    data, head_bytes = part.encode()
    assert "lead" not in pa.ipc.open_stream(data[16:head_bytes]).schema.to_string()


HOSTILE_PIECES: tuple[dict[str, Any], ...] = (
    *({"segment": value} for value in (-SEGMENT, 1, HUGE)),
    *({"segment_size": value} for value in (0, -1, 1 << 31, HUGE)),
    *({"start": value} for value in (-1, 60, 2 * SEGMENT, HUGE)),
    *({"records": value} for value in (-1, SEGMENT, HUGE)),
    *({"pack_start": value} for value in (-1, 16, 64, HUGE)),
    *({"pack_size": value} for value in (-32, 31, 351, 384, 1 << 50, HUGE)),
    *({"pack_digest": value} for value in ("", "../../x", "g" * 64, "a" * 63)),
    *({"objects": (LogObject(stop, "a" * 64),)} for stop in (0, -1, SEGMENT + 1, HUGE)),
    *({"lead": value} for value in (-48, 1, 47, HUGE)),
    {"objects": ()},
    {"objects": (LogObject(SEGMENT, "../" * 21 + "x"),)},
    {"objects": (LogObject(60, "a" * 64), LogObject(50, "a" * 64), LogObject(SEGMENT, "a" * 64))},
)


@pytest.mark.parametrize("change", HOSTILE_PIECES)
def test_a_piece_with_an_impossible_value_is_refused(change: dict[str, Any]) -> None:
    part = filled()
    with pytest.raises(CorruptError, match=r"impossible name or number|other rows|no object"):
        rewritten(replace(part, pieces=(part.pieces[0]._replace(**change), part.pieces[1])))


HOSTILE_RUNS = (
    *(("queue", value) for value in (-1, 0, 2)),
    *(("row", value) for value in (-1, 3)),
    *(("rows", value) for value in (0, -1, 10)),
    *(("first", value) for value in (-1, HUGE)),
    *(("first_offset", value) for value in (-1, 9)),
    *(("last_offset", value) for value in (-1, SEGMENT)),
    *(("bytes", value) for value in (-1, HUGE)),
)


@pytest.mark.parametrize(("name", "value"), HOSTILE_RUNS)
def test_a_run_with_an_impossible_value_is_refused(name: str, value: int) -> None:
    part = filled()
    assert part.runs is not None
    runs = part.runs.copy()
    runs[name][2] = value
    with pytest.raises(CorruptError, match=r"impossible name or number|other rows|statistics"):
        rewritten(replace(part, runs=runs))


@pytest.mark.parametrize(
    "name", ["runs", "rows", "bytes", "first", "last", "first_offset", "last_offset", "first_time"]
)
@pytest.mark.parametrize("value", [-1, 1 << 40, HUGE])
def test_statistics_that_are_not_those_of_the_runs_are_refused(name: str, value: int) -> None:
    part = filled()
    totals = part.totals.copy()
    totals[name][1] = value
    with pytest.raises(CorruptError, match=r"impossible name or number|statistics|other runs|cannot be read"):
        rewritten(replace(part, totals=totals))


def test_lists_that_contradict_each_other_are_refused() -> None:
    part = filled()
    assert part.runs is not None
    for hostile in (
        replace(part, pieces=part.pieces[::-1]),
        replace(part, pieces=(part.pieces[0],) * 2),
        replace(part, queues=(part.queues[0],) * 2),
        replace(part, runs=part.runs[::-1]),
        replace(part, runs=part.runs[1:]),
    ):
        with pytest.raises(CorruptError, match="part"):
            rewritten(hostile)


def test_a_block_that_would_be_larger_than_its_runs_is_refused_before_it_is_unpacked() -> None:
    data, head_bytes = large(700, 13).encode()
    head = Part.decode(data[:head_bytes], PLACE)
    assert head.blocks is not None
    bomb = pa.compress(bytes(64 << 20), codec="zstd", asbytes=True)
    head.blocks["size"][0], head.blocks["crc"][0] = len(bomb), zlib.crc32(bomb)
    with pytest.raises(CorruptError, match="a block of the part cannot be read"):
        head.runs_of_block(0, bomb, PLACE)
