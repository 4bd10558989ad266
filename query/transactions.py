"""Transactional messages as rows: half messages, with their outcome.

::

    RMQ_SYS_TRANS_HALF_TOPIC/0      half message: REAL_TOPIC, REAL_QID, PGROUP, UNIQ_KEY
    RMQ_SYS_TRANS_OP_HALF_TOPIC/0   TAGS d, body "12" or "12,13,": half messages that were answered, by queue offset
    REAL_TOPIC                      committed message: its prepared transaction offset is the half message's place

    committed message ──► commit     answered without one ──► rollback     later half message of its key ──► checked
    in TRANS_CHECK_MAX_TIME_TOPIC ──► discarded                   none of these ──► pending

The broker writes a half message again before it checks it, so a transaction may have several rows. A committed message
is found by its unique key: an answered half message without one has outcome null. Answers take 16 bytes of memory each.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import OnCorrupt, OnLoss, ScanSpec, StoreReader
from segmentlog.store.find import Finder

from .metadata import SCHEMAS
from .system_topics import (
    Ints,
    SystemWindow,
    batch_of,
    find_unique,
    ids_of,
    last_places,
    messages_of,
    whole_numbers,
)

_HALVES: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_ANSWERS: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
_DISCARDED: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
_SHARED: Final = ("brokerName", "physicalOffset", "tags", "keys", "uniqKey", "msgId", "storeTimestamp")
_PROPERTIES: Final = ("REAL_TOPIC", "REAL_QID", "PGROUP", "TRANSACTION_CHECK_TIMES")
_COMMITTED: Final = ScanSpec(
    columns=("physicalOffset", "queueOffset", "sysFlag", "preparedTransactionOffset"),
    on_corrupt=OnCorrupt.SKIP,
    on_loss=OnLoss.SKIP,
)
_TYPE_MASK: Final = 0xC
_TYPE_COMMIT: Final = 0x8
_NOWHERE: Final = pa.scalar(None, pa.int64())


def transaction_batches(store: StoreReader, window: SystemWindow) -> Iterator[pa.RecordBatch]:
    """Yield the half messages of a store, by queue offset."""
    answers = _Answers(store, window)
    finder = Finder(store)
    for batch in messages_of(
        store, _HALVES, window, columns=(*_SHARED, "queueId", "queueOffset"), properties=_PROPERTIES
    ):
        kept = batch.filter(pa.array(window.keeps(batch["REAL_TOPIC"])))
        if kept.num_rows:
            yield _rows(kept, answers, finder)


def _rows(batch: pa.RecordBatch, answers: "_Answers", finder: Finder) -> pa.RecordBatch:
    keys, place = batch["uniqKey"], batch["physicalOffset"]
    answered = answers.of(batch["queueId"].to_numpy(), batch["queueOffset"].to_numpy())
    commit, commit_offset = _commits(finder, batch["REAL_TOPIC"], keys, place)

    def later(topic: str) -> pa.Array:
        return pa.array(last_places(finder, pa.repeat(topic, len(keys)), keys) > place.to_numpy())

    is_answered = pc.is_valid(answered)
    outcome = pc.case_when(
        pc.make_struct(
            pc.is_valid(commit),
            pc.and_(is_answered, pc.is_null(keys)),
            is_answered,
            later(_HALVES),
            later(_DISCARDED),
        ),
        "commit",
        pa.scalar(None, pa.string()),
        "rollback",
        "checked",
        "discarded",
        "pending",
    )
    checks = batch["TRANSACTION_CHECK_TIMES"]
    return batch_of(
        SCHEMAS["transactions"],
        {
            **{name: batch[name] for name in _SHARED},
            "outcome": outcome,
            "topic": batch["REAL_TOPIC"],
            "queueId": ids_of(whole_numbers(batch["REAL_QID"])),
            "producerGroup": batch["PGROUP"],
            "checks": ids_of(whole_numbers(pc.fill_null(checks, "0"))),
            "halfQueueOffset": batch["queueOffset"],
            "answerPhysicalOffset": answered,
            "commitPhysicalOffset": commit,
            "commitQueueOffset": commit_offset,
        },
    )


def _commits(finder: Finder, topics: pa.Array, keys: pa.Array, place: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return physical and queue offset of the message that committed each half message; null for none."""
    nowhere = pa.nulls(len(keys), pa.int64())
    found = find_unique(finder, topics, keys)
    if found is None or not len(found):
        return nowhere, nowhere
    table = found.to_table(_COMMITTED)
    # By the type, too: ordinary messages have offset 0, which may be the place of a half message.
    table = table.filter(pc.equal(pc.bit_wise_and(table["sysFlag"], _TYPE_MASK), _TYPE_COMMIT)).combine_chunks()
    row = pc.index_in(place, value_set=table["preparedTransactionOffset"])
    return tuple(_only(table[name]).take(row) for name in ("physicalOffset", "queueOffset"))


def _only(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


class _Answers:
    """Half messages that were answered: queue id and queue offset of each, with the place of the answer."""

    def __init__(self, store: StoreReader, window: SystemWindow) -> None:
        self._by_queue: dict[int, tuple[Ints, Ints]] = {}
        found: dict[int, list[tuple[Ints, Ints]]] = {}
        after = SystemWindow(start_ms=window.start_ms)  # an answer is stored after its half message
        for batch in messages_of(store, _ANSWERS, after, columns=("queueId", "physicalOffset", "body", "tags")):
            done = batch.filter(pc.equal(batch["tags"], "d"))
            for queue_id in pc.unique(done["queueId"]).to_pylist():
                of_queue = done.filter(pc.equal(done["queueId"], queue_id))
                found.setdefault(queue_id, []).append(_halves(of_queue))
        for queue_id, pieces in found.items():
            offsets, places = (np.concatenate(each) for each in zip(*pieces, strict=True))
            offsets, first = np.unique(offsets, return_index=True)
            if offsets.size:
                self._by_queue[queue_id] = offsets, places[first]

    def of(self, queue_ids: Ints, offsets: Ints) -> pa.Array:
        """Return the physical offset of the answer to each of (n,) half messages; null for none."""
        places = np.full(offsets.size, -1, np.int64)
        for queue_id, (answered, answers) in self._by_queue.items():
            rows = np.flatnonzero(queue_ids == queue_id)
            at = np.searchsorted(answered, offsets[rows])
            at[at == answered.size] = 0
            hit = answered[at] == offsets[rows]
            places[rows[hit]] = answers[at[hit]]
        return pa.array(places, mask=places < 0)


def _halves(batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Queue offsets of half messages in the bodies of answers, and the place of each answer."""
    parts = pc.split_pattern(batch["body"], b",")
    rows = pc.list_parent_indices(parts)
    texts = pc.list_flatten(parts)
    digits = pc.match_substring_regex(texts, "^[0-9]{1,18}$")
    offsets = texts.filter(digits).cast(pa.string()).cast(pa.int64())
    return offsets.to_numpy(), batch["physicalOffset"].take(rows.filter(digits)).to_numpy()
