"""Runs of an archive's queues, from all of its parts, read when they are asked for.

::

    parts     [ A B C │ A0 A1 B0 C0 C1 ][ A B │ A2 B1 B2 ][ B │ B3 ]        heads have statistics, blocks have runs
    totals      A: rows, bytes, first and last offset and time              known when the archive is opened
    runs of B                 B0                  B1 B2          B3         read when they are asked for, and kept

A run has the number of its piece among all pieces, and of its queue among all queues.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ..format.archive_part import NO_TIME, RUN, SEALED_RUNS, TOTAL, Part, Runs, continues
from ..format.message import Ints
from ..types import QueueKey

if TYPE_CHECKING:
    from ..directory.archived_store import ArchivedStore

_KEPT_RUNS_MAX: Final = 1 << 20
_PLANNED_RUNS_MAX: Final = 1 << 20
_NOWHERE: Final = -1


class SealedPart(NamedTuple):
    """A part of which a plan has all runs of its queues."""

    number: int
    queues: Ints  # (n,) those that are asked for, by their numbers within the part
    begins: Ints  # the ends of all queues before the part
    ends: Ints  # and after it: it has all queue offsets in between


class ArchiveRuns:
    """Runs of the queues of one archive, as of one manifest. Not thread-safe."""

    def __init__(self, archived: "ArchivedStore") -> None:
        self._archived = archived
        self._numbers: dict[tuple[str, int], int] = {}
        self._of_part = [
            np.array([self._numbers.setdefault(queue, len(self._numbers)) for queue in part.queues], np.int64)
            for part in archived.parts
        ]
        self._pruned = [each for each in archived.manifest.pruned if each.queue not in self._numbers]
        self._numbers |= {each.queue: number for number, each in enumerate(self._pruned, len(self._numbers))}
        counts = np.array([len(part.pieces) for part in archived.parts], np.int64)
        self._first_piece = np.cumsum(counts) - counts
        self._kept: dict[int, Runs] = {}
        self._kept_runs = 0

    @cached_property
    def keys(self) -> list[QueueKey]:
        """The queues, by their numbers."""
        return [QueueKey(*name) for name in self._numbers]

    def number(self, key: QueueKey) -> int | None:
        """Number of a queue; None if the archive has, and had, no record of it."""
        return self._numbers.get(key)

    @cached_property
    def totals(self) -> Runs:
        """Statistics of each queue, (n,) `TOTAL`. Queues whose messages are all pruned end before they begin."""
        found = np.zeros(len(self._numbers), TOTAL)
        for part, numbers in zip(self._archived.parts, self._of_part, strict=True):
            total, known = part.totals.copy(), found[numbers]
            is_known = known["runs"] > 0
            total["rises"] &= ~is_known | (known["rises"] & continues(known, total))
            for name in ("runs", "rows", "bytes"):
                total[name] += known[name]
            for name in ("first", "first_offset", "first_time"):
                total[name][is_known] = known[name][is_known]
            found[numbers] = total
        pruned = found[len(found) - len(self._pruned) :]
        pruned["first"] = [each.max_offset for each in self._pruned]
        pruned["last"] = pruned["first"] - 1
        pruned["first_time"] = pruned["last_time"] = NO_TIME
        pruned["rises"] = True
        return found

    def of(self, queues: Ints, starts: Ints | None = None, stops: Ints | None = None) -> Runs:
        """Return the runs of (n,) ascending queues, by queue and then by piece.

        With ``starts`` and ``stops``, (n,) queue offsets of queues that rise, runs of other offsets may be missing.
        """
        found = [np.empty(0, RUN)]
        for at, (part, numbers) in enumerate(zip(self._archived.parts, self._of_part, strict=True)):
            local = self._local(at, queues)
            if starts is not None and stops is not None:
                place = np.searchsorted(queues, numbers[local])
                total = part.totals[local]
                local = local[(total["last"] >= starts[place]) & (total["first"] < stops[place])]
            if local.size:
                runs = self._archived.runs(at, local).copy()
                runs["piece"] += self._first_piece[at]
                runs["queue"] = numbers[runs["queue"]]
                found.append(runs)
        runs = np.concatenate(found)
        return runs[np.lexsort((runs["piece"], runs["queue"]))]

    def beside(self, piece: int, queues: Ints) -> tuple[Ints, Ints]:
        """Queue offsets of the last message before a piece, and of the first one from there on, of (n,) queues.

        -1 for no message. The queues rise. Runs are read of the part with the piece alone.
        """
        before, after = np.full((2, len(self._numbers)), _NOWHERE, np.int64)
        for at in reversed(range(len(self._of_part))):
            part, numbers = self._archived.parts[at], self._of_part[at]
            first = int(self._first_piece[at])
            if first >= piece:
                after[numbers] = part.totals["first"]
            elif first + len(part.pieces) > piece:
                runs = self._archived.runs(at, self._local(at, queues))
                is_after = runs["piece"] >= piece - first
                late, early = runs[is_after][::-1], runs[~is_after]  # of equal indices the last one stays
                after[numbers[late["queue"]]], before[numbers[early["queue"]]] = late["first"], early["last"]
            else:
                is_unknown = before[numbers] == _NOWHERE
                before[numbers[is_unknown]] = part.totals["last"][is_unknown]
        return before[queues], after[queues]

    def sealed_parts(self, queues: Ints, starts: Ints, stops: Ints) -> list[SealedPart]:
        """Return the sealed parts whose runs of (n,) ascending queues are all in their ranges; none of a small plan."""
        low, high = np.full((2, len(self._numbers)), _NOWHERE, np.int64)
        low[queues], high[queues] = starts, stops
        whole = np.zeros(len(self._of_part), np.bool_)
        ends, before = np.full((2, len(self._numbers)), -1, np.int64)
        edges, asked, local = [ends.copy()], 0, [self._local(at, queues) for at in range(whole.size)]
        for at, part in enumerate(self._archived.parts):
            numbers, total = self._of_part[at][local[at]], part.totals[local[at]]
            first, last = total["first"], total["last"]
            asked += int(total["runs"][(last >= low[numbers]) & (first < high[numbers])].sum())
            is_within = (first >= low[numbers]) & (last < high[numbers])
            whole[at] = _is_sealed(part) and numbers.size > 0 and bool(is_within.all())
            lost = (ends[numbers] >= 0) & (first != ends[numbers])
            whole[before[numbers[lost]]] = False
            whole[at] &= not lost.any()
            ends[numbers], before[numbers] = last + 1, at
            edges.append(ends.copy())
        if asked <= _PLANNED_RUNS_MAX:
            return []
        return [SealedPart(at, local[at], edges[at], edges[at + 1]) for at in np.flatnonzero(whole).tolist()]

    def _local(self, at: int, queues: Ints) -> Ints:
        """Numbers of queues within a part."""
        found: Ints = np.flatnonzero(np.isin(self._of_part[at], queues))
        return found

    def load(self, queues: Sequence[int]) -> None:
        """Read the runs of some queues together, for `of_one`."""
        unknown = np.array(sorted({*queues} - self._kept.keys()), np.int64)
        if not unknown.size:
            return
        runs = self.of(unknown)
        if self._kept_runs + runs.size > _KEPT_RUNS_MAX:
            self._kept.clear()
            self._kept_runs = 0
        self._kept_runs += runs.size
        edges = np.searchsorted(runs["queue"], unknown), np.searchsorted(runs["queue"], unknown, side="right")
        for queue, first, last in zip(unknown.tolist(), *(each.tolist() for each in edges), strict=True):
            self._kept[queue] = runs[first:last]

    def of_one(self, queue: int) -> Runs:
        """Return the runs of a queue, by piece."""
        self.load([queue])
        return self._kept[queue]


def _is_sealed(part: Part) -> bool:
    """Return whether a part is sealed: only a push that prunes, or that cuts the log, writes its runs again."""
    pieces = part.pieces
    is_large = part.runs is None and part.run_count >= SEALED_RUNS
    return is_large and pieces[0].start == pieces[0].segment and pieces[-1].is_last
