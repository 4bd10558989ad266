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
from typing import Final, NamedTuple

from ..format.hashing import index_key_hash
from ..format.message import SYS_ROLLBACK, SYS_TRANSACTION
from ..format.message_decode_one import Record, parse_properties
from ..format.properties import KEYS, UNIQ_KEY
from ..index.chain import ChainWalk
from ..index.criteria import ALWAYS, KeyField, Window
from ..log.commit_log import CommitLog
from .coverage import Coverage

CANDIDATES_MAX: Final = 64
"""Records to read one by one; more of them are faster in bulk."""


class SingleKey(NamedTuple):
    """A key of a topic, and what counts as a hit."""

    topic: str
    key: str
    field: KeyField = KeyField.KEYS
    window: Window = ALWAYS

    @property
    def is_plain(self) -> bool:
        """True if it can be compared byte by byte with the keys of records."""
        return bool(self.topic and self.key) and self.topic.isascii() and self.key.isascii()


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
        key_hash = index_key_hash(asked.topic, asked.key)
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
            carries = _carries(record.record, asked, key_hash)
            if carries is None:
                return None
            if carries:
                found.append(offset)
        return found


def _carries(record: Record, asked: SingleKey, key_hash: int) -> bool | None:
    """Return whether a record carries a key; None if none of its keys has even the same hash."""
    if record.sys_flag & SYS_TRANSACTION == SYS_ROLLBACK:
        return None
    properties = parse_properties(bytes(record.properties))
    unique = properties.get(UNIQ_KEY, "")
    pieces = properties.get(KEYS, "").split(" ")
    if bytes(record.topic) == asked.topic.encode():
        by_unique = asked.field is not KeyField.KEYS and unique == asked.key
        if by_unique or (asked.field is not KeyField.UNIQUE and asked.key in pieces):
            start_ms, stop_ms = asked.window
            stored = record.store_timestamp
            return (start_ms is None or stored >= start_ms) and (stop_ms is None or stored < stop_ms)
        if unique == asked.key or asked.key in pieces:
            return False  # by the property that was not asked for
    topic = bytes(record.topic).decode("utf-8", "replace")
    hashes = (index_key_hash(topic, each) for each in (unique, *pieces) if each)
    return False if key_hash in hashes else None
