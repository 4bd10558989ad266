"""Ledger of a table: the parts that a backfill committed, and the proof which of them the table holds now.

::

    the current snapshot names all files of the part      it has it, whatever became of the commit
    it names none, or some; in files of other writers
        all rows of the part, each once                   it has it: the files were compacted
        no row of it                                      it lacks it: rolled back, or deleted
        some rows, or none can be told from others        an error that asks the user

A part that was written again after a rollback has several rows in the ledger. The table holds those that follow each
other and have the most messages; rows of others after their ends are the same error.

The jobs write tables and their ledgers; `tables` reads on where they end.
"""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from segmentlog.store import QueueKey, SegmentLogError

from .parts import Part, PartKey, Row, Window, ends_of
from .rows import table_of

T = TypeVar("T")
FOLDER: Final = "segmentlog"
TIME: Final = "storeTimestamp"
KEYS: Final = ("topic", "queueId", "queueOffset")
"""Columns that tell messages of a store from each other."""
_ATTEMPT: Final = re.compile(rf"(?:^|/){FOLDER}/[0-9a-f]{{12}}/([0-9a-f]{{16}})/")
_OFFSET: Final = KEYS[-1]
_KEY_TYPES: Final = pa.schema([("topic", pa.string()), ("queueId", pa.int64()), (_OFFSET, pa.int64())])
_MESSAGES: Final = attrgetter("messages")
_SPAN_TYPES: Final = pa.schema([*([*_KEY_TYPES][:2]), ("first", pa.int64()), ("end", pa.int64())])
Bounds: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Lowest value of some columns, and the value after the highest."""


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
        """Return a value that differs after each change of the table."""

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
        """Forget the parts of this job, before ``job_id`` names another one."""
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


class _Chain(NamedTuple):
    """Parts 0, 1, … of a window, each planned from where those before it end.

    ::

        ledger      part 0 [0, 2)  part 1 [2, 6)          rolled back, and written again:
                    part 0 [0, 4)  part 1 [4, 8)
        compacted   0 1 2 3 4 5                           the first two; to go on after [0, 4) would double 4 and 5
    """

    rows: tuple[Row, ...] = ()
    ends: Mapping[QueueKey, int] = MappingProxyType({})
    messages: int = 0

    def leads_to(self, row: Row) -> bool:
        """Return whether a part begins where these end, or later."""
        return all(first >= self.ends.get(key, 0) for key, (first, _) in row.part.offsets.items())

    def then(self, row: Row) -> "_Chain":
        return _Chain((*self.rows, row), {**self.ends, **ends_of([row.part])}, self.messages + row.written.messages)


class _Proof:
    """Proof of the parts that a table holds in a period, from its current content."""

    def __init__(self, target: Ledger, period: Window) -> None:
        self._target, self._window = target, period
        self._files = Counter(map(attempt_of, self._read(lambda: target.files(self._bounds()))))
        """Files by the attempt that wrote them; None for those of other writers."""

    def held(self, window: Window, rows: Sequence[Row]) -> list[Row]:
        """Return one row for each part of a window that the table holds."""
        self._window = window
        named = {row.attempt: row.part.number for row in rows if row.written.files and self._is_named(row)}
        numbers = set(named.values())
        levels: dict[int, list[Row]] = {}
        for row in rows:
            if row.attempt in named or row.part.number not in numbers:
                levels.setdefault(row.part.number, []).append(row)
        best = _Chain()
        chains = [best]
        for _, level in sorted(levels.items()):
            found = [(row, [each for each in chains if each.leads_to(row)]) for row in level]
            chains = [
                max(before, key=_MESSAGES).then(row)
                for row, before in found
                if before and (row.attempt in named or self._count(row, {}) == row.written.messages)
            ]
            best = max([*chains, best], key=_MESSAGES)  # of equal ones the longest
        chosen = {row.attempt for row in best.rows}
        for row in chain.from_iterable(levels.values()):
            if row.attempt not in chosen:
                self._check_absent(row, best, is_named=row.attempt in named)
        return list(best.rows)

    def _check_absent(self, row: Row, held: "_Chain", *, is_named: bool) -> None:
        """Raise if the table has messages of a part after the ends of those that it holds: they would be doubled."""
        number, messages = row.part.number, row.written.messages
        count = messages if is_named else self._count(row, held.ends)
        if not count:
            return
        if count == messages and number > len(held.rows):
            raise self._unclear(number, f"it is there, and part {len(held.rows)} is not")
        twice = "some of its messages are there twice"
        raise self._unclear(number, twice if is_named else f"{count} of its {messages} messages are there")

    def _bounds(self) -> Bounds:
        start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in self._window)
        return {TIME: (start, end)} if TIME in self._target.columns() else {}

    def _is_named(self, row: Row) -> bool:
        count = self._files[row.attempt]
        if count > row.written.files:
            raise self._unclear(row.part.number, f"the table names {count} files of its {row.written.files}")
        return count == row.written.files

    def _count(self, row: Row, after: Mapping[QueueKey, int]) -> int:
        """Return how many messages of a part, from some offsets on, are in files that no other attempt has written."""
        part, target = row.part, self._target
        spans = _spans(part, after)
        sources = {None, row.attempt}.intersection(self._files)
        if not (sources and spans.num_rows and row.written.messages):
            return 0
        if lacking := set(KEYS).difference(target.columns()):
            raise self._unclear(part.number, f"its files were rewritten without `{', '.join(sorted(lacking))}`")
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


def _spans(part: Part, after: Mapping[QueueKey, int]) -> pa.Table:
    """Return the offsets of a part from some offsets on, with a row per queue that has any."""
    spans = [(*key, max(first, after.get(key, 0)), end) for key, (first, end) in part.offsets.items()]
    return table_of([each for each in spans if each[2] < each[3]], _SPAN_TYPES)


def listed(system: fs.FileSystem, path: str, *, recursive: bool = False) -> list[fs.FileInfo]:
    """Return what a directory holds, which is nothing if it does not exist."""
    selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
    try:
        return list(system.get_file_info(selector))
    except FileNotFoundError:  # Arrow could not list it, and then found it: another process made it in between
        return list(system.get_file_info(selector))


def first_line(error: Exception) -> str:
    """Return the kind and the first line of an error of a library."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
