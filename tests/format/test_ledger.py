import zlib

import pytest

from segmentlog.store import FormatError
from segmentlog.store.format.ledger import (
    KEPT,
    LOST,
    Application,
    Batch,
    Ledger,
    LedgerEntry,
    QueueSpan,
    checked_batch,
    decode,
    encode,
)

SPANS = (QueueSpan("orders", 0, 5, 9, 5), QueueSpan("größer", 3, 0, 0, 1))


def entry(version: int, sequence: int) -> LedgerEntry:
    return LedgerEntry(version, sequence, 100 * sequence, 100 * sequence + 99, 6, 99, 1_760_000_000_000 + sequence)


def filled() -> Ledger:
    ledger = Ledger().with_entry("query", entry(0, 1), SPANS).with_entry(None, entry(0, 2), ())
    return ledger.with_entry("query", entry(1, 3), SPANS[:1]).with_entry('a "b"', entry(7, 4), ())


def test_it_is_read_as_it_was_written() -> None:
    ledger = filled()
    assert decode(encode(ledger), "ledger") == ledger
    assert decode(encode(Ledger()), "ledger") == decode(None, "ledger") == Ledger()
    assert ledger.sequence == 4
    assert ledger.newest == Batch('a "b"', entry(7, 4))
    assert Ledger().newest is None
    held = ledger.applications["query"]
    assert (held.newest, held.find(0), held.find(2), held.queues) == (entry(1, 3), entry(0, 1), None, SPANS[:1])
    newest = entry(0, 1)._replace(digest=(1 << 64) - 1)
    assert decode(encode(Ledger().with_entry("query", newest, ())), "ledger").applications["query"].newest == newest


def test_any_altered_byte_is_refused_and_not_taken_for_empty() -> None:
    data = encode(filled())
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(FormatError, match="ledger of batches is damaged"):
                decode(damaged, "ledger")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"app": "a", "batches": [[1, 2]], "queues": []}',
        b'{"app": "a", "queues": []}',
        b'{"app": [], "batches": [], "queues": []}',
        b'{"app": "a", "batches": [], "queues": []}',
        b'{"app": "a", "batches": [["1", {}, [], null, 5, 6, 7]], "queues": []}',
        b'{"app": "a", "batches": [[0, 1, 0, 9, 1, 9, 0, 5]], "queues": [[5, 0, 0, 0, 1]]}',
        b'{"app": "a", "batches": [[0, 1, 0, 9, 1, 9, 0, 5]], "queues": [["t", 0, 0, 0.5, 1]]}',
        b"[]",
        b"7",
        b"\xff",
    ],
)
def test_a_body_of_another_shape_is_refused_though_its_checksum_is_right(body: bytes) -> None:
    title = b"segmentlog-ledger 1 1 0 0 "
    with pytest.raises(FormatError, match="ledger of batches is damaged"):
        decode(title + b"%08x\n" % zlib.crc32(body, zlib.crc32(title)) + body, "ledger")


def test_it_does_not_grow_with_batches() -> None:
    ledger, sizes = Ledger(), []
    for number in range(100_000, 100_000 + 3 * KEPT):
        ledger = ledger.with_entry("query", entry(number, number), SPANS)
        sizes.append(len(encode(ledger)))
    assert sizes[-1] == sizes[KEPT]
    held = ledger.applications["query"]
    assert [each.version for each in held.entries] == list(range(100_000 + 2 * KEPT, 100_000 + 3 * KEPT))
    for number in range(5):
        ledger = ledger.with_entry(None, entry(0, number + 200_000), SPANS)
    assert ledger.applications[None].entries == (entry(0, 200_004),), "without an application the newest is kept"


def test_the_batches_beyond_an_offset_are_in_the_order_of_the_log() -> None:
    ledger = Ledger()
    for app, sequence in (("query", 1), (None, 2), ("query", 3), ("job", 4)):
        ledger = ledger.with_entry(app, entry(sequence, sequence), SPANS)
    for end, left in ((499, []), (498, [4]), (250, [2, 3, 4]), (0, [1, 2, 3, 4])):
        assert [each.entry.sequence for each in ledger.beyond(end)] == left


SOUND = (3, 7, 100, 900, 5, 800, 1_760_000_000_000, 1 << 63)


@pytest.mark.parametrize("app", ["q", "größer", "x" * 255, None])
def test_a_sound_batch_is_accepted(app: str | None) -> None:
    assert checked_batch(app, list(SOUND)) == Batch(app, LedgerEntry(*SOUND))
    assert checked_batch(app, [*SOUND[:-1], None]).entry.digest is None


@pytest.mark.parametrize(
    ("app", "changed"),
    [
        *((app, {}) for app in ("", "a\nb", "a\0", "\ud800", "\x7f", "x" * 256, "ö" * 128, 7, b"q", ["q"])),
        *(("q", {at: value}) for at in range(7) for value in (-1, (1 << 62) + 1, 1.5, "1", True, None)),
        ("q", {2: 901}),
        ("q", {7: -1}),
        ("q", {7: 1 << 64}),
        ("q", {7: "5"}),
        ("q", {4: -1, 2: 900, 1: -1}),
        (None, {4: -1, 2: 900}),
    ],
)
def test_a_batch_that_no_store_has_is_refused(app: object, changed: dict[int, object]) -> None:
    numbers = [changed.get(at, number) for at, number in enumerate(SOUND)]
    with pytest.raises((ValueError, TypeError)):
        checked_batch(app, numbers)


def test_a_mark_of_lost_batches_is_not_found_as_a_batch() -> None:
    mark = checked_batch("q", [3, 7, 900, 900, LOST, 0, 0, None]).entry
    ledger = Ledger(7, {"q": Application((mark,), ())})
    assert decode(encode(ledger), "ledger") == ledger
    assert ledger.applications["q"].find(3) is None
    after = ledger.with_entry("q", entry(3, 8), ())
    assert after.applications["q"].entries == (entry(3, 8),)
