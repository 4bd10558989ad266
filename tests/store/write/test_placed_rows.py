"""Rows that are placed before they are written, in any order."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from segmentlog.store import BatchPlacement, MessageStore, Outgoing
from segmentlog.store.dispatch.rules import DispatchedRecords
from segmentlog.store.encode.batch import EncodedRows, encode_batch
from segmentlog.store.write.placed_rows import AheadPiece
from support.batches import batch_of
from support.written_stores import SMALL

MESSAGES = [
    Outgoing(topic="T", body=b"%d" % row * 99, queue_id=row % 3, born_timestamp=7, tags="tag", keys=f"k{row}")
    for row in range(330)
]
FIRST = Outgoing(topic="T", body=b"first", born_timestamp=7)
CLOCK = 1_763_700_000_000


def pieces(*, delayed: bool = False) -> list[EncodedRows]:
    """Rows of three pieces, over several segments."""
    rows = [replace(each, properties={"DELAY": "3"}) for each in MESSAGES] if delayed else MESSAGES
    return [encode_batch(batch_of(rows[at : at + 110]), SMALL)[0] for at in (0, 110, 220)]


def opened(path: Path) -> MessageStore:
    return MessageStore.open(path, SMALL, clock=lambda: CLOCK)


def place_all(store: MessageStore, rows: list[EncodedRows]) -> Iterator[AheadPiece]:
    end = store._put_path.end
    for each in rows:
        piece = store._put_path.place_ahead(each, end)
        run = piece.placed.runs[-1]
        end = run.base + run.position + run.stop - run.start
        yield piece


def contents(path: Path) -> dict[str, bytes]:
    files = [*(path / "commitlog").iterdir(), *(path / "consumequeue").glob("*/*/*")]
    return {str(file.relative_to(path)): file.read_bytes().rstrip(b"\0") for file in files}


@pytest.mark.parametrize("delayed", [False, True])
def test_pieces_written_in_any_order_are_what_a_batch_writes(tmp_path: Path, *, delayed: bool) -> None:
    with opened(tmp_path / "whole") as store:
        before = store.append(FIRST).size
        for rows in pieces(delayed=delayed):
            store._put_path.put_batch([rows])
    expected = contents(tmp_path / "whole")
    assert len(list((tmp_path / "whole" / "commitlog").iterdir())) > 1
    for order in permutations(range(3)):
        path = tmp_path / "".join(map(str, order))
        with opened(path) as store:
            store.append(FIRST)
            placed = list(place_all(store, pieces(delayed=delayed)))
            requests = {at: placed[at].write() for at in order}
            assert store.end_offset == before
            for at, piece in enumerate(placed):
                store._put_path.append_ahead(piece, requests[at])
        assert contents(path) == expected


def test_a_request_has_entries_unless_the_records_have_to_be_read(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        (piece,) = place_all(store, pieces()[:1])
        assert isinstance(piece.write().records, DispatchedRecords)
        (delayed,) = place_all(store, pieces(delayed=True)[:1])
        request = delayed.write()
        assert request.positions is not None
        assert request.positions.tolist() == delayed.placed.rows.records.positions.tolist()


def test_rows_for_one_segment_are_placed_in_one(tmp_path: Path) -> None:
    rows = encode_batch(batch_of(MESSAGES[:20]), SMALL, BatchPlacement.ONE_SEGMENT)
    with opened(tmp_path / "s") as store:
        (piece,) = place_all(store, rows)
        assert len(piece.files) == len(piece.placed.runs) == 1
