"""Look-up of a single key in a store that has not changed since the last one.

::

    hash of topic#key ──► chain of each index file ───┐
                     └──► records between the files ──┴──► candidates ──► each record read ──► topic and key equal: hit
                          (their keys, kept by hash)                          │ neither key nor hash: None

A search in bulk costs some milliseconds, whatever it is asked: the index is listed, and records that no file answers
for are read. As long as the readable part of the log stays the same, its coverage and those records do, too. They are
kept here, and a single key costs its chains and the records of its hits. What this cannot decide is left to
`search.KeySearch`: long chains, many hits, and an index entry whose record lacks the key.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ..index.chain import ChainWalk
from ..index.single_key import SingleKey
from ..log.commit_log import CommitLog
from .coverage import Coverage

CANDIDATES_MAX: Final = 64
"""Records to read one by one; more of them are faster in bulk."""


class SingleSearch:
    """Look-ups of single keys in one readable part of a log. Not thread-safe.

    Parameters
    ----------
    log
        The CommitLog.
    start, stop
        Physical offsets between which records may be seen.
    chains
        Index files that are believed.
    coverage
        Spans of the log that they answer for, and those that were scanned.
    unindexed
        Physical offsets of the records of the scanned spans, by the hash of each of their keys.
    """

    def __init__(  # noqa: PLR0917 - one place makes them
        self,
        log: CommitLog,
        start: int,
        stop: int,
        chains: Sequence[ChainWalk],
        coverage: Coverage,
        unindexed: Mapping[int, Sequence[int]],
    ) -> None:
        self._log = log
        self._start = start
        self._stop = stop
        self._chains = chains
        self._unindexed = unindexed
        self.coverage = coverage

    def find(self, asked: SingleKey) -> list[int] | None:
        """Find all records that carry a key.

        Returns
        -------
        list of int or None
            Physical offsets, ascending and distinct. None if the search in bulk has to decide.
        """
        key_hash = asked.key_hash
        candidates = set(self._unindexed.get(key_hash, ()))
        for chain in self._chains:
            offsets = chain.offsets(key_hash)
            if offsets is None or len(offsets) > CANDIDATES_MAX:
                return None
            candidates.update(each for each in offsets if self._start <= each < self._stop)
        if len(candidates) > CANDIDATES_MAX:
            return None
        found: list[int] = []
        for offset in sorted(candidates):
            record = self._log.record_at(offset)
            if record is None:
                return None  # damaged, deleted, or never of this log: an index file may lose its credit
            carries = asked.is_of(record.record)
            if carries is None:
                return None
            if carries:
                found.append(offset)
        return found
