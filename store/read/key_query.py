"""Query by key: the newest records that carry one key, each compared with it.

::

    index ──► newest candidates: records of an equal hash ──► log: equal topic and equal key? ──► hits, ascending
      ▲                                                             │ fewer than asked for
      └──────────────── twice as many candidates ◄──────────────────┘

An index holds hashes, so a candidate may carry another key. RocketMQ returns the candidates, and its clients compare
(``DefaultMessageStore.queryMessage``, ``MQAdminImpl.queryMessage``). There collisions take the place of hits; here they
do not.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from ..format.message import Ints
from ..index.asked import ask, match
from ..index.criteria import ALWAYS, KeyField, SingleKey
from ..index.reader import Index
from ..log.commit_log import CommitLog
from ..log.point_reads import records_at
from .store_reader import StoreReader

_FEW: Final = 64
"""Records to read one by one; more of them are faster as columns."""


def query_key(store: StoreReader, index: Index, topic: str, key: str, max_num: int) -> list[int]:
    """Find the newest records that carry a key, as far as the index of the store knows them.

    Parameters
    ----------
    store
        The store; records that it hides are left out, see `StoreReader.hidden_from`.
    index
        Its index.
    topic, key
        One piece of ``KEYS``, or a ``UNIQ_KEY``.
    max_num
        How many records at most.

    Returns
    -------
    list of int
        Physical offsets, ascending; each record once. Deleted and damaged records are left out.

    Raises
    ------
    SegmentLogError
        As `Index.query`.
    """
    asked = SingleKey(topic, key, KeyField.EITHER)
    wanted = max_num
    while True:
        candidates = index.query(topic, key, wanted)
        hits = _hits(store.log, asked, sorted(set(candidates)))
        hidden_from = store.hidden_from()
        if hidden_from is not None:
            hits = [each for each in hits if each < hidden_from]
        if len(hits) >= max_num or len(candidates) < wanted:
            return hits[max(len(hits) - max_num, 0) :]
        wanted *= 2


def _hits(log: CommitLog, asked: SingleKey, candidates: list[int]) -> list[int]:
    """Return those of ascending candidates whose records carry the key."""
    if len(candidates) <= _FEW and asked.is_plain:
        records = [log.record_at(each) for each in candidates]
        pairs = zip(candidates, records, strict=True)
        return [each for each, found in pairs if found is not None and asked.is_of(found.record)]
    return _compared(log, asked, np.array(candidates, np.int64)).tolist()  # type: ignore[no-any-return]


def _compared(log: CommitLog, wanted: SingleKey, candidates: Ints) -> Ints:
    """Compare (n,) ascending candidates as columns."""
    asked = ask(pa.array([wanted.topic]), pa.array([wanted.key]), wanted.field, ALWAYS)
    found = [np.empty(0, np.int64)]
    for _, rows, records in records_at(log, candidates):
        found.append(candidates[rows[np.unique(match(records, asked).row)]])
    return np.concatenate(found)
