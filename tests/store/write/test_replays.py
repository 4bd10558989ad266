"""Replays of a batch: what counts as one, what is silent, what is logged, and what is refused."""

import logging
from contextlib import nullcontext
from dataclasses import replace

import pytest

from segmentlog.store import BatchId
from segmentlog.store.config import OnChangedReplay
from segmentlog.store.errors import BatchGapError, ChangedReplayError, ConfigError, Remedy
from segmentlog.store.format.ledger import LOST, Application, Ledger, LedgerEntry, QueueSpan
from segmentlog.store.write.replays import CommittedBatch, find_replay

SPANS = (QueueSpan("T", 0, 0, 4, 5),)


def entry(version: int) -> LedgerEntry:
    start = version * 1000
    return LedgerEntry(
        version=version,
        sequence=version + 1,
        start=start,
        stop=start + 900,
        rows=5,
        bytes=900,
        committed_ms=1_000 + version,
        digest=77,
    )


def ledger(*versions: int) -> Ledger:
    made = Ledger()
    for version in versions:
        made = made.with_entry("q", entry(version), SPANS)
    return made


def find(
    batch_id: BatchId,
    rows: int = 5,
    digest: int = 77,
    *,
    on_changed: OnChangedReplay = OnChangedReplay.FAIL,
    known: Ledger | None = None,
) -> CommittedBatch | None:
    return find_replay(known or ledger(6, 7), batch_id, rows, digest, on_changed=on_changed, path="/s")


@pytest.mark.parametrize(
    "batch_id", [BatchId(), BatchId("other", 3), BatchId("q", 8), BatchId("q", 8, contiguous=True), BatchId("q", 20)]
)
def test_a_batch_that_the_ledger_has_not_is_new(batch_id: BatchId) -> None:
    assert find(batch_id) is None


def test_the_newest_batch_is_returned_as_it_was_committed(caplog: pytest.LogCaptureFixture) -> None:
    found = find(BatchId("q", 7))
    assert found == CommittedBatch.of("q", entry(7), SPANS, repeated=True)
    assert (found.start, found.stop, found.rows, found.queues) == (7000, 7900, 5, SPANS)
    assert caplog.records == []


def test_queues_are_known_of_the_newest_batch_alone() -> None:
    assert find(BatchId("q", 6)) == CommittedBatch.of("q", entry(6), (), repeated=True)


def test_other_bodies_are_logged_with_both_digests(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find(BatchId("q", 7), digest=0xABC) is not None
    (record,) = caplog.records
    assert "0000000000000abc" in record.getMessage()
    assert f"{77:016x}" in record.getMessage()


def test_a_digest_that_an_old_ledger_lacks_is_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    known = Ledger().with_entry("q", entry(7)._replace(digest=None), SPANS)
    assert find(BatchId("q", 7), digest=0xABC, known=known) is not None
    assert caplog.records == []


def test_another_number_of_rows_is_refused_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ChangedReplayError, match="has 4 rows, and had 5 rows") as raised:
        find(BatchId("q", 7), rows=4)
    assert set(raised.value.remedies) == {Remedy.NEW_APP, Remedy.SKIP_CHANGED_REPLAY}
    with caplog.at_level(logging.WARNING):
        found = find(BatchId("q", 7), rows=4, on_changed=OnChangedReplay.SKIP)
    assert found is not None
    assert found.rows == 5
    assert "has 4 rows, and had 5 rows" in caplog.text


def test_a_forgotten_batch_is_refused_where_numbers_are_contiguous() -> None:
    with pytest.raises(ChangedReplayError, match="the ledger no longer says how many"):
        find(BatchId("q", 2, contiguous=True))
    for batch_id, on_changed in (
        (BatchId("q", 2, contiguous=True), OnChangedReplay.SKIP),
        (BatchId("q", 2), OnChangedReplay.FAIL),
    ):
        found = find(batch_id, on_changed=on_changed)
        assert found is not None
        assert (found.version, found.rows, found.bytes, found.start, found.stop) == (2, 0, 0, 7900, 7900)
        assert found.queues == ()
        assert found.repeated


def test_a_number_that_leaves_others_out_is_refused_where_numbers_are_contiguous() -> None:
    with pytest.raises(BatchGapError, match="comes after batch 7") as raised:
        find(BatchId("q", 9, contiguous=True))
    assert raised.value.remedies == (Remedy.NEW_APP,)


def test_a_number_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch number -1"):
        find(BatchId("q", -1))


def test_a_batch_says_its_identity() -> None:
    assert str(BatchId()) == "a batch without an id"
    assert str(replace(BatchId("q", 3), contiguous=True)) == "batch 3 of q"


@pytest.mark.parametrize("app", ["", "a\nb", "\ud800", "x" * 256])
def test_a_name_that_no_ledger_can_have_is_refused(app: str) -> None:
    with pytest.raises(ConfigError, match=r"name of the application .*Choose another name"):
        BatchId(app)


@pytest.mark.parametrize("version", [-1, (1 << 62) + 1])
def test_a_number_that_no_ledger_can_have_is_refused(version: int) -> None:
    with pytest.raises(ConfigError, match="is not between 0 and"):
        BatchId("q", version)


@pytest.mark.parametrize(
    ("newest", "version", "epoch", "is_gap"),
    [
        (None, 7, 0, False),  # a stream that wrote elsewhere
        (None, 0, 3, False),
        (None, 1, 3, True),
        ((4, LOST), 4, 3, False),
        ((4, LOST), 5, 3, True),
        ((4, 9), 5, 3, False),
        ((4, 9), 6, 0, True),
    ],
)
def test_a_stream_is_told_of_batches_that_a_store_lost(
    newest: tuple[int, int] | None, version: int, epoch: int, is_gap: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = Ledger()
    if newest is not None:
        last = LedgerEntry(newest[0], 1, 100, 100 if newest[1] == LOST else 190, newest[1], 0, 0)
        found = Ledger(1, {"q": Application((last,), ())})
    batch = BatchId("q", version, contiguous=True)
    for on_changed in OnChangedReplay:
        refused = is_gap and (newest is not None or on_changed is OnChangedReplay.FAIL)
        with pytest.raises(BatchGapError, match=f"batch {version} of q ") if refused else nullcontext():
            assert find_replay(found, batch, 5, 0, on_changed=on_changed, path="s", epoch=epoch) is None
    assert ("has none of them" in caplog.text) == (is_gap and newest is None)
    job = BatchId("q", version)
    assert find_replay(found, job, 5, 0, on_changed=OnChangedReplay.FAIL, path="", epoch=epoch) is None
