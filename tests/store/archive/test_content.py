import numpy as np
import pytest

from segmentlog.store.archive.content import cut, ends_without, joined, names_of, parts_with, settled
from segmentlog.store.format.archive_manifest import Manifest, PartName, PrunedQueue
from segmentlog.store.format.archive_part import RUN, Part, Piece
from support.archives import of_manifest, simple_piece
from support.memory_objects import MemoryObjects

KEYS = [("a", 0), ("b", 1), ("c", 2)]
LIGHT = ("%LMQ%device", 0)


def piece(at: int, rows: int = 1) -> Piece:
    return simple_piece(at * 100, 100, at * 100, at * 100 + 100, min(rows, 1), (at, at), rows, f"{at:064x}")


def made(at: int, *queues: int) -> Part:
    runs = np.zeros(len(queues), RUN)
    runs["queue"], runs["rows"], runs["row"] = np.arange(len(queues)), 1, np.arange(len(queues))
    runs["first_offset"] = runs["last_offset"] = at * 100
    runs["first"] = runs["last"] = at
    runs["first_time"] = runs["last_time"] = at
    runs["rises"] = True
    return Part.of([piece(at, len(queues))], [[*KEYS, LIGHT][queue] for queue in queues], runs)


def test_runs_are_ascending_by_queue_and_piece_and_queues_by_name() -> None:
    whole = joined([made(0, 2), made(1, 0, 2), made(2, 1)])
    assert whole.queues == (*KEYS,)
    assert whole.runs is not None
    assert whole.runs[["queue", "piece", "row"]].tolist() == [(0, 1, 0), (1, 2, 0), (2, 0, 0), (2, 1, 1)]
    assert whole.totals[["runs", "first", "last", "rises"]].tolist()[2] == (2, 0, 1, True)


def test_pieces_that_are_left_out_take_their_runs_and_unused_queues_along() -> None:
    whole = joined([made(0, 0), made(1, 1), made(2, 1, 2)])
    rest = cut(whole, 1, 3)
    assert (rest.pieces, rest.queues) == (whole.pieces[1:], (KEYS[1], KEYS[2]))
    assert rest.runs is not None
    assert rest.runs[["queue", "piece"]].tolist() == [(0, 0), (0, 1), (1, 1)]
    empty = cut(whole, 0, 0)
    assert (empty.pieces, empty.queues, empty.run_count) == ((), (), 0)


def test_queues_that_no_part_has_keep_their_ends_but_for_light_ones() -> None:
    former = Manifest(pruned=(PrunedQueue("a", 0, 9), PrunedQueue("d", 4, 7)))
    heads = [made(3, 0, 1, 2, 3), made(5, 1, 2)]
    after, cut_back = (ends_without(former, heads, [made(9, 2)], is_cut=is_cut) for is_cut in (False, True))
    assert after == (("a", 0, 4), ("b", 1, 6), ("d", 4, 7))
    assert cut_back == (("a", 0, 3), ("b", 1, 3), ("d", 4, 7))


def test_a_piece_without_records_has_no_pack() -> None:
    part = Part.of((piece(0), piece(1, 0)), (), np.empty(0, RUN))
    assert [key.split("/")[0] for key, _ in names_of(Manifest(), [part])] == ["log", "queues", "log"]


def grown(pushes: int, *queues: int) -> tuple[MemoryObjects, tuple[PartName, ...]]:
    """Return the parts after some pushes of a piece each."""
    objects = MemoryObjects()
    names: tuple[PartName, ...] = ()
    for at in range(pushes):
        held = parts_with(objects, Manifest(parts=names), 0, at)
        names = settled(objects, [*held, made(at, *queues)], objects.put)
    return objects, names


@pytest.mark.parametrize("pushes", [1, 7, 8, 9, 64, 100, 200])
def test_pushes_are_merged_into_few_parts_that_state_the_same(pushes: int) -> None:
    objects, names = grown(pushes, 0, 2)
    assert len(names) <= 7 * (1 + int(np.log(2 * pushes) / np.log(8)))
    assert [names[0].start, *(each.stop for each in names)] == [0, *(each.stop for each in names)]
    found = of_manifest(objects, Manifest(parts=names)).part
    whole = joined([made(at, 0, 2) for at in range(pushes)])
    assert (found.pieces, found.queues) == (whole.pieces, whole.queues)
    assert np.array_equal(found.runs, whole.runs)
    assert np.array_equal(found.totals, whole.totals)


def test_a_part_that_is_cut_is_written_again_and_whole_ones_are_not() -> None:
    objects, names = grown(20, 0, 2)
    puts = objects.calls["put"]
    first = names[0].pieces - 1
    held = parts_with(objects, Manifest(parts=names), first, 20)
    made_of = settled(objects, held, objects.put)
    assert made_of[1:] == names[1:]
    assert (made_of[0].start, made_of[0].pieces, objects.calls["put"]) == (first * 100, 1, puts + 1)
    assert settled(objects, parts_with(objects, Manifest(parts=names), 20, 20), objects.put) == ()
