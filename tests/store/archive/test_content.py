import numpy as np

from segmentlog.store.archive.content import joined, names_of, with_pieces
from segmentlog.store.format.archive_manifest import RUN, Manifest, Piece
from segmentlog.store.types import QueueKey

KEYS = [QueueKey("a", 0), QueueKey("b", 1), QueueKey("c", 2)]


def piece(at: int, pack_size: int = 32) -> Piece:
    return Piece(at * 100, 100, at * 100, at * 100 + 100, 1, at, at, f"{at:064x}", pack_size, f"{at:064x}")


def added(at: int, *queues: int) -> tuple[Piece, list[QueueKey], np.ndarray]:
    runs = np.zeros(len(queues), RUN)
    runs["queue"], runs["rows"], runs["row"] = np.arange(len(queues)), 1, np.arange(len(queues))
    return piece(at), [KEYS[queue] for queue in queues], runs


def test_runs_are_ascending_by_piece_and_queue_and_count_in_the_queues_of_the_manifest() -> None:
    made = joined(joined(Manifest(), [added(0, 2)]), [added(1, 0, 2), added(2, 1)])
    assert made.queues == (KEYS[2], KEYS[0], KEYS[1])
    assert made.runs[["piece", "queue", "row"]].tolist() == [(0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 2, 0)]


def test_pieces_that_are_left_out_take_their_runs_and_unused_queues_along() -> None:
    whole = joined(Manifest(), [added(0, 0), added(1, 1), added(2, 1, 2)])
    assert with_pieces(whole, slice(3)) is whole
    rest = with_pieces(whole, slice(1, None))
    assert (rest.pieces, rest.queues) == (whole.pieces[1:], (KEYS[1], KEYS[2]))
    assert rest.runs[["piece", "queue"]].tolist() == [(0, 0), (1, 0), (1, 1)]
    assert whole.runs["piece"].tolist() == [0, 1, 2, 2]
    empty = with_pieces(whole, slice(0))
    assert (empty.pieces, empty.queues, empty.runs.size) == ((), (), 0)


def test_a_piece_without_records_has_no_pack() -> None:
    manifest = Manifest(pieces=(piece(0), piece(1, pack_size=0)))
    assert [key.split("/")[0] for key, _ in names_of(manifest)] == ["log", "queues", "log"]
