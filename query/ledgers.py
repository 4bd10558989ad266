"""Ledger of a table: the parts that a backfill committed, and the proof which of them the table holds now.

::

    the current snapshot names all files of the part      it has it, whatever became of the commit
    it names none, or some; in files of other writers
        all rows of the part, each once                   it has it: the files were compacted
        no row of it                                      it lacks it: rolled back, or deleted
        some rows, or none can be told from others        an error that asks the user

The jobs write tables and their ledgers; `tables` reads on where they end.
"""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import QueueKey, SegmentLogError

from .parts import Part, PartKey, Row, Window, ends_of

T = TypeVar("T")
FOLDER: Final = "segmentlog"
TIME: Final = "storeTimestamp"
KEYS: Final = ("topic", "queueId", "queueOffset")
"""Columns that tell messages of a store from each other."""
_ATTEMPT: Final = re.compile(rf"(?:^|/){FOLDER}/[0-9a-f]{{12}}/([0-9a-f]{{16}})/")
_OFFSET: Final = KEYS[-1]
_KEY_TYPES: Final = pa.schema([("topic", pa.string()), ("queueId", pa.int64()), (_OFFSET, pa.int64())])
Bounds: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Lowest value of some columns, and the one after the highest."""


class TargetUnclearError(SegmentLogError):
    """Whether a table has the messages of a part cannot be told."""

    condition = "SEGMENTLOG_TARGET_UNCLEAR"


class Ledger(ABC):
    """Table with the ledger of one job."""

    name: str
    job_id: str
    """Of the job, as the table knows it."""
    _state: object = None
    _rows: Sequence[Row] = ()
    _held: dict[Window, list[Row]]
    """Parts that the table holds by window, valid for `_state`."""

    @abstractmethod
    def close(self) -> None:
        """Free what is open."""

    @abstractmethod
    def refresh(self) -> None:
        """Load the table as it is now."""

    @abstractmethod
    def state(self) -> object:
        """Return what changes with each change of the table."""

    @abstractmethod
    def jobs(self) -> Mapping[str, str]:
        """Return the `Job.to_json` of the jobs of the loaded table, by their ids."""

    @abstractmethod
    def ledger(self) -> list[Row]:
        """Return the parts of this job that were ever committed to the loaded table."""

    @abstractmethod
    def files(self, bounds: Bounds) -> Sequence[str]:
        """Return the paths of the loaded table's files, at least of those with rows within some bounds."""

    @abstractmethod
    def keys(self, bounds: Bounds, reads: Callable[[str], bool]) -> pa.Table:
        """Return the `KEYS` of rows within some bounds, or with a null there, of files whose paths it reads."""

    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Return the names of the loaded table's columns that this job writes."""

    def forget(self) -> None:
        """Forget the parts of the job, before another one is named."""
        self._state = None

    def is_shared(self) -> bool:
        """Tell whether other jobs write messages of the same topics into the table."""
        topics = {name: set(json.loads(text)["topics"]) for name, text in self.jobs().items()}
        own = topics.pop(self.job_id, set())
        return any(map(own.intersection, topics.values()))

    def recorded(self) -> Sequence[Part]:
        """Return the parts of this job that were ever committed."""
        self.refresh()
        return [row.part for row in self.ledger()]

    def parts(self, since_ms: int = 0, until_ms: int | None = None) -> Sequence[Part]:
        """Return the parts of this job that the table holds, of windows that overlap with a period."""
        self.refresh()
        return [row.part for row in self.held(since_ms, until_ms).values()]

    def held(self, since_ms: int, until_ms: int | None) -> dict[PartKey, Row]:
        """Return what the loaded table holds of windows that overlap with a period."""
        if self._state is None or self._state != self.state():
            self._state, self._rows, self._held = self.state(), self.ledger(), {}
        windows: dict[Window, list[Row]] = {}
        for row in self._rows:
            if row.part.window.end_ms > since_ms and (until_ms is None or row.part.window.start_ms < until_ms):
                windows.setdefault(row.part.window, []).append(row)
        if new := sorted(windows.keys() - self._held.keys()):
            proof = _Proof(self, Window(new[0].start_ms, max(each.end_ms for each in new)))
            self._held |= {window: proof.held(window, windows[window]) for window in new}
        return {row.key: row for window in sorted(windows) for row in self._held[window]}


class _Proof:
    """Proof of the parts that a table holds in a period, from its current content."""

    def __init__(self, target: Ledger, period: Window) -> None:
        self._target, self._window = target, period
        self._files = Counter(map(attempt_of, self._read(lambda: target.files(self._bounds()))))
        """Files by the attempt that wrote them; None for those of other writers."""

    def held(self, window: Window, rows: Sequence[Row]) -> list[Row]:
        """Return one row for each part of a window that the table holds."""
        self._window = window
        found: list[Row] = []
        lost = None
        for number in sorted({row.part.number for row in rows}):
            ends = ends_of([row.part for row in found])
            there = self._choose([row for row in rows if row.part.number == number], ends)
            if there is None:
                lost = number if lost is None else lost
            elif lost is None:
                found.append(there)
            elif there.written.messages:
                raise self._unclear(number, f"it is there, and part {lost} is not")
        return found

    def _bounds(self) -> Bounds:
        start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in self._window)
        return {TIME: (start, end)} if TIME in self._target.columns() else {}

    def _choose(self, rows: Sequence[Row], ends: Mapping[QueueKey, int]) -> Row | None:
        """Return the row of a part that the table has, of those of one number."""
        named = [row for row in rows if row.written.files and self._is_named(row)]
        following = [row for row in named or rows if all(s >= ends.get(k, 0) for k, (s, _) in row.part.offsets.items())]
        if len(named) > 1 or len(following) < len(named):
            raise self._unclear(rows[0].part.number, "some of its messages are there twice")
        if named:
            return named[0]
        counts = [(row, self._count(row) if row.written.messages else 0) for row in following]
        # After a rollback the part was written again, maybe with more messages: the larger one has those of the other.
        whole = [row for row, count in counts if count == row.written.messages]
        best = max(whole, key=lambda row: row.written.messages, default=None)
        partial = [(row, count) for row, count in counts if 0 < count < row.written.messages]
        if partial and (best is None or not best.written.messages):
            row, count = partial[0]
            raise self._unclear(row.part.number, f"{count} of its {row.written.messages} messages are there")
        return best

    def _is_named(self, row: Row) -> bool:
        count = self._files[row.attempt]
        if count > row.written.files:
            raise self._unclear(row.part.number, f"the table names {count} files of its {row.written.files}")
        return count == row.written.files

    def _count(self, row: Row) -> int:
        """Return how many messages of a part are in files that no other attempt has written."""
        sources = {None, row.attempt}.intersection(self._files)
        if not sources:
            return 0
        part, target = row.part, self._target
        if lacking := set(KEYS).difference(target.columns()):
            raise self._unclear(part.number, f"its files were rewritten without `{', '.join(sorted(lacking))}`")
        spans = _spans(part)
        bounds = {**self._bounds(), _OFFSET: (pc.min(spans["first"]).as_py(), pc.max(spans["end"]).as_py())}
        rows = self._read(lambda: target.keys(bounds, lambda path: attempt_of(path) in sources))
        rows = rows.select(KEYS).cast(_KEY_TYPES)
        there = rows.join(spans, list(KEYS[:2]), join_type="inner")
        there = there.filter((pc.field(_OFFSET) >= pc.field("first")) & (pc.field(_OFFSET) < pc.field("end")))
        count = int(there.group_by(list(KEYS)).aggregate([]).num_rows)
        if count != there.num_rows:
            raise self._unclear(part.number, "some of its messages are there twice")
        if count and target.is_shared():
            raise self._unclear(part.number, "its files were rewritten, and other jobs write the same topics")
        if count < row.written.messages and sum(rows[name].null_count for name in KEYS):
            raise self._unclear(part.number, f"the table has rows in which one of `{', '.join(KEYS)}` is null")
        return count

    def _read(self, work: Callable[[], T]) -> T:
        """Return what a library reads from the table."""
        try:
            return work()
        except Exception as error:
            raise self._unclear(None, f"its files cannot be read: {first_line(error)}") from error

    def _unclear(self, number: int | None, reason: str) -> TargetUnclearError:
        part = "" if number is None else f"part {number} of "
        problem = f"{self._target.name}: whether {part}{self._window} was written cannot be told: {reason}"
        fix = "Leave the window out, or delete its rows from the table: then the next run writes it again"
        return TargetUnclearError(problem, fix=fix)


def attempt_of(path: str) -> str | None:
    found = _ATTEMPT.search(path)
    return found[1] if found else None


def _spans(part: Part) -> pa.Table:
    """Return the offsets of a part, with a row per queue."""
    found = [(key.topic, key.queue_id, first, end) for key, (first, end) in part.offsets.items()]
    kinds = [*_KEY_TYPES.types, pa.int64()]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*found, strict=True), kinds, strict=True)]
    return pa.table(columns, ["topic", "queueId", "first", "end"])


def first_line(error: Exception) -> str:
    """Return the kind and the first line of an error of a library."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
