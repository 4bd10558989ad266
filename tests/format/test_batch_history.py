from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format.batch_history import (
    TITLE_BYTES,
    BatchHistory,
    Title,
    decode_lines,
    decode_title,
    encode_line,
    encode_lines,
)
from segmentlog.store.format.ledger import KEPT, LOST, Batch, Ledger, LedgerEntry, QueueSpan

SPANS = (QueueSpan("orders", 0, 5, 9, 5),)


def batch(app: str | None, version: int, sequence: int) -> Batch:
    start = 100 * sequence
    return Batch(app, LedgerEntry(version, sequence, start, start + 90, 6, 90, 1_760_000_000_000, 7))


HISTORY = BatchHistory(
    (batch("q", 0, 1), batch("größer", 4, 2), batch("q", 1, 3), batch(None, 0, 4), batch("late", 9, 5))
)


def test_it_is_read_as_it_was_written() -> None:
    lines = encode_lines(HISTORY)
    assert decode_lines(lines, "batches", BatchHistory()) == (HISTORY, len(lines))
    assert decode_lines(b"", "batches", HISTORY) == (HISTORY, 0)
    title = Title(7, 1 << 40)
    assert decode_title(title.encode() + lines, "batches") == title
    assert len(title.encode()) == TITLE_BYTES
    for split in range(6):
        front, rest = BatchHistory(HISTORY.batches[:split]), BatchHistory(HISTORY.batches[split:])
        assert decode_lines(encode_lines(rest), None, front)[0] == HISTORY


def test_any_altered_byte_is_refused() -> None:
    data = encode_lines(HISTORY)
    for at in range(len(data) - 1):
        altered = bytearray(data)
        altered[at] ^= 1
        with pytest.raises(FormatError, match="history of batches is damaged"):
            decode_lines(bytes(altered), "batches", BatchHistory())
    title = Title(1, 2).encode()
    for at in range(len(title) - 1):
        with pytest.raises(FormatError):
            decode_title(title[:at] + b"?" + title[at + 1 :], "batches")


def test_a_torn_end_is_left_out() -> None:
    whole, last = encode_lines(HISTORY), encode_line(batch("q", 2, 6))
    for size in range(len(last)):
        for torn in (last[:size], last[:size] + bytes(len(last) - size), last[:size] + bytes(9) + last[size:]):
            assert decode_lines(whole + torn, "batches", BatchHistory()) == (HISTORY, len(whole)), size


NEXT = batch("q", 7, 6)


@pytest.mark.parametrize(
    "after",
    [
        batch("q", 7, 5),  # a number twice
        *(NEXT._replace(entry=NEXT.entry._replace(start=start)) for start in (589, -5)),
        *(NEXT._replace(app=app) for app in ("", "a\nb")),
    ],
)
def test_batches_that_cannot_follow_are_refused_though_their_checksums_are_right(after: Batch) -> None:
    with pytest.raises(FormatError):
        decode_lines(encode_line(after), "batches", HISTORY)


def test_a_log_has_each_batch_as_a_whole_or_not_at_all() -> None:
    wholes = {0: 0, 99: 99, 100: 100, 101: 100, 189: 100, 190: 190, 350: 300, 595: 595}
    for end, whole in wholes.items():
        assert HISTORY.whole_end(end) == whole
        assert [each.entry.sequence for each in HISTORY.beyond(end)] == [n for n in range(1, 6) if 100 * n + 90 > end]


def test_every_prefix_has_its_ledger() -> None:
    former = Ledger().with_entry("q", HISTORY.batches[2].entry, SPANS)
    ledger = HISTORY.ledger_at(390, former)
    found = {app: [each.version for each in held.entries] for app, held in ledger.applications.items()}
    assert found == {"q": [0, 1], "größer": [4], "late": [9]}
    assert ledger.sequence == 5, "numbers go on after the batches that are lost"
    assert ledger.applications["q"].queues == SPANS
    assert ledger.applications["late"].newest.rows == LOST
    assert ledger.applications["late"].newest.start == ledger.applications["late"].newest.stop == 390
    earlier = HISTORY.ledger_at(190, former)
    assert earlier.applications["q"].queues == (), "they are those of a batch that is lost"
    assert {app for app, held in earlier.applications.items() if held.newest.rows == LOST} == {"größer", "late"}
    assert HISTORY.ledger_at(590, former, sequence=12).sequence == 12


def test_marks_of_lost_batches_move_with_further_cuts_and_are_kept() -> None:
    once = HISTORY.up_to(390)
    twice = once.up_to(190)
    for history, end in ((once, 390), (twice, 190)):
        assert history.batches[-1] == Batch(
            "late", HISTORY.batches[-1].entry._replace(start=end, stop=end, rows=LOST, bytes=0, digest=None)
        )
        assert decode_lines(encode_lines(history), None, BatchHistory())[0] == history
    assert [each.app for each in twice.batches] == ["q", "größer", "late"]


def test_an_application_keeps_its_last_batches() -> None:
    many = BatchHistory(tuple(batch("q" if n % 2 else None, n, n) for n in range(1, 4 * KEPT)))
    ledger = many.ledger_at(100 * 2 * KEPT + 95, Ledger())
    assert [each.version for each in ledger.applications["q"].entries] == list(range(2 * KEPT - 1, 0, -2))[::-1]
    assert [each.version for each in ledger.applications[None].entries] == [2 * KEPT]


def test_the_newest_batch_of_the_ledger_joins_once() -> None:
    ledger = Ledger()
    for app, entry in HISTORY.batches:
        ledger = ledger.with_entry(app, entry, ())
    assert BatchHistory(HISTORY.batches[:-1]).joined(ledger) == HISTORY
    assert HISTORY.joined(ledger) == HISTORY
    assert HISTORY.joined(Ledger()) == HISTORY


@given(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=40), st.integers(0, 41), st.integers(1, 20))
def test_a_compacted_history_hides_no_less_and_loses_no_batch_of_the_ledger(
    apps: list[str | None], deleted: int, most: int
) -> None:
    history = BatchHistory(tuple(batch(app, n, n) for n, app in enumerate(apps, 1)))
    ledger = Ledger()
    for app, entry in history.batches:
        ledger = ledger.with_entry(app, entry, ())
    first = 100 * deleted
    shorter = history.compacted(first, ledger, most)
    assert decode_lines(encode_lines(shorter), None, BatchHistory())[0] == shorter
    assert all(one.entry.stop <= after.entry.start for one, after in pairwise(shorter.batches))
    kept = {(app, each) for app, held in ledger.applications.items() for each in held.entries}
    assert kept <= {(each.app, each.entry) for each in shorter.batches}
    for end in range(first, 100 * len(apps) + 200, 5):
        assert shorter.whole_end(end) <= history.whole_end(end)
    last_stop = max((each.entry.stop for each in history.batches), default=0)
    assert shorter.whole_end(last_stop) == last_stop
