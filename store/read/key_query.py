"""Query by key: the newest records that carry one key, each compared with it.

::

    index ──► newest candidates: records of an equal hash ──► log: equal topic and equal key? ──► hits, ascending
      ▲                                                             │ fewer than asked for
      └──────────────── twice as many candidates ◄──────────────────┘

An index holds hashes, so a candidate may carry another key. RocketMQ returns the candidates, and its clients compare
(``DefaultMessageStore.queryMessage``, ``MQAdminImpl.queryMessage``). There collisions take the place of hits; here they
do not.
"""

import numpy as np
import pyarrow as pa

from ..format.message import Ints
from ..index.asked import Asked, ask, match
from ..index.criteria import ALWAYS, KeyField
from ..index.reader import Index
from ..log.commit_log import CommitLog
from ..log.point_reads import records_at
from .store_reader import StoreReader


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
    asked = ask(pa.array([topic]), pa.array([key]), KeyField.EITHER, ALWAYS)
    wanted = max_num
    while True:
        candidates = np.array(index.query(topic, key, wanted), np.int64)
        hits = _hits(store.log, asked, np.unique(candidates))
        hidden_from = store.hidden_from()
        if hidden_from is not None:
            hits = hits[hits < hidden_from]
        if hits.size >= max_num or candidates.size < wanted:
            return hits[max(hits.size - max_num, 0) :].tolist()  # type: ignore[no-any-return]
        wanted *= 2


def _hits(log: CommitLog, asked: Asked, candidates: Ints) -> Ints:
    """Return those of (n,) ascending candidates whose records carry the key."""
    found = [np.empty(0, np.int64)]
    for _, rows, records in records_at(log, candidates):
        found.append(candidates[rows[np.unique(match(records, asked).row)]])
    return np.concatenate(found)
