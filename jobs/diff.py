"""Job ``diff``: two stores compared, a replica with its master, a copy with its original, an archive with its store.

::

    logs share physical offsets   windows of both logs, as bytes ──► records, where bytes differ      store/maintenance
    else, by queue offset         A orders/0 [0, 9000)               [0, 4096) ──► equal
                                  B orders/0 [0, 8000)               [4096, 8000) ─┬► equal
                                             tail missing in B                     └► halves … ──► rows

A task maps both stores: it compares them directly, instead of digests of them.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segmentlog.query.rows import table_of
from segmentlog.store import (
    ConfigError,
    FormatError,
    OnCorrupt,
    OnLoss,
    QueueBounds,
    QueueKey,
    QueueRange,
    ScanSpec,
    Snapshot,
)
from segmentlog.store.maintenance import (
    Difference,
    Side,
    compare_windows,
    log_span,
    log_windows,
    logs_align,
    merged,
)

from .report import Report
from .spread import spread
from .state_file import write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ints = npt.NDArray[np.int64]
LEVELS: Final = ("auto", "log", "queue")
_SHOWN_MAX: Final = 10_000
_ROWS: Final = 1 << 15
_COLUMNS: Final = ("queueOffset", "physicalOffset", "body", "tags", "keys", "properties")
_COMPARED: Final = ("body", "tags", "keys", "properties")
_OF_STORE: Final = "__CRC32#"
"""Property that covers the whole record, with its place in one store."""
_ROW_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("firstOffset", pa.int64()),
        ("endOffset", pa.int64()),
        ("messages", pa.int64()),
        ("physicalOffsetA", pa.int64()),
        ("fileA", pa.string()),
        ("physicalOffsetB", pa.int64()),
        ("fileB", pa.string()),
    ]
)
_LOG_BYTES: Final = 8 << 20
_MESSAGES: Final = 1 << 12
_OF_TASK: Final = 8
"""Ranges that a task reads."""


class _QueueWindow(NamedTuple):
    """Ranges of queues that both stores have."""

    a: Side
    b: Side
    ranges: tuple[QueueRange, ...]


def run(
    spark: "SparkSession | None",
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    by: str = "auto",
    archive: bool = False,
    commit_logs: tuple[Sequence[str], Sequence[str]] = ((), ()),
    processes: int | None = None,
) -> Report:
    """Compare two stores.

    Parameters
    ----------
    spark
        Whose tasks compare; None for the cores of this machine.
    a, b
        The stores. Messages that retention deleted in one of them are not a finding.
    by
        ``log`` by physical offset, ``queue`` by queue offset, ``auto`` by log if the logs share physical offsets.
    archive
        B is the archive of A: what both hold is compared, and what neither holds is a finding.
    commit_logs
        The directories of the segments of A and of B, if they are not in ``commitlog``.
    processes
        How many, without Spark.

    Returns
    -------
    Report
        A row per run of messages of a queue that are missing or differ.

    Raises
    ------
    ConfigError
        If ``by`` is unknown.
    SegmentLogError
        If a store cannot be opened.
    """
    if by not in LEVELS:
        raise ConfigError(f"by={by!r} is unknown", fix=f"Pass one of {', '.join(LEVELS)}")
    one, two = (Side(os.path.abspath(path), tuple(logs)) for path, logs in zip((a, b), commit_logs, strict=True))
    spans = [log_span(each.open()) for each in (one, two)]
    by_log = archive or by == "log" or (by == "auto" and logs_align(one, two))
    numbers: dict[str, int | str] = {"by": "log" if by_log else "queue"}
    for name, span in zip("AB", spans, strict=True):
        numbers |= {f"logStart{name}": span.start, f"logEnd{name}": span.stop}
    found: list[Difference] = []
    if by_log:
        windows = log_windows(one, two, both=archive)
        numbers["comparedBytes"] = sum(each.stop - each.start for each in windows)
        if archive and spans[1].stop < spans[0].start:
            lost = spans[1].stop
            found.append(Difference("missing in both", None, None, lost, spans[0].start, 0, lost, None, lost, None))
        results = spread(compare_windows, windows, spark, processes=processes)
    else:
        parts, found = _queue_windows(one, two)
        numbers["comparedMessages"] = sum(len(each) for part in parts for each in part.ranges)
        results = spread(_compare_queues, parts, spark, processes=processes)
    return report_of(numbers, merged([*found, *(each for result in results for each in result)]))


def report_of(numbers: Mapping[str, int | str], found: Sequence[Difference]) -> Report:
    """Return numbers, with the messages of each kind, and a row per difference."""
    by_kind: Counter[str] = Counter()
    for each in found:
        by_kind[each.kind] += each.messages
    return Report(
        numbers={**numbers, **by_kind, "findings": len(found)},
        table=table_of(found[:_SHOWN_MAX], _ROW_SCHEMA),
        has_findings=bool(found),
    )


def _queue_windows(a: Side, b: Side) -> tuple[list[_QueueWindow], list[Difference]]:
    """Cut what both stores have of each queue; what follows in one of them alone is missing in the other."""
    one, two = (bounds_of(each.open()) for each in (a, b))
    missing: list[Difference] = []
    parts: list[_QueueWindow] = []
    ranges: list[QueueRange] = []
    rows = 0
    for key in sorted({*one, *two}):
        left, right = one.get(key), two.get(key)
        start = max(each.min_offset for each in (left, right) if each)
        ends = [each.max_offset if each else start for each in (left, right)]
        for name, lacks, has in (("A", ends[0], ends[1]), ("B", ends[1], ends[0])):
            first = max(start, lacks)
            if has > first:
                kind = f"missing in {name}"
                place = place_in((b if name == "A" else a).open(), key, first)
                places = (None, None, *place) if name == "A" else (*place, None, None)
                missing.append(Difference(kind, *key, first, has, has - first, *places))
        for at in range(start, min(ends), _ROWS):
            ranges.append(QueueRange(key, at, min(at + _ROWS, *ends)))
            rows += len(ranges[-1])
            if rows >= _ROWS:
                parts.append(_QueueWindow(a, b, tuple(ranges)))
                ranges, rows = [], 0
    return [*parts, _QueueWindow(a, b, tuple(ranges))] if ranges else parts, missing


def bounds_of(snapshot: Snapshot) -> dict[QueueKey, QueueBounds]:
    """Return the bounds of each queue."""
    return {each.key: each for topic in snapshot.topics() for each in snapshot.queues(topic)}


def place_in(snapshot: Snapshot, key: QueueKey | None, offset: int) -> tuple[int | None, str | None]:
    """Return physical offset and file of a message; without a queue the offset is the physical one."""
    place = offset if key is None else snapshot.entries.place_of(key, offset)
    return place, _file(snapshot, place)


def _file(snapshot: Snapshot, place: int | None) -> str | None:
    segment = None if place is None else snapshot.log.find(place)
    return None if segment is None else segment.path


def _compare_queues(window: _QueueWindow) -> tuple[Difference, ...]:
    snapshots = window.a.open(), window.b.open()
    return tuple(each for wanted in window.ranges for each in _compare_range(snapshots, wanted))


def _compare_range(snapshots: tuple[Snapshot, Snapshot], wanted: QueueRange) -> Iterator[Difference]:
    one, two = (read_range(each, wanted) for each in snapshots)
    offsets_a, offsets_b = (each["queueOffset"].to_numpy() for each in (one, two))
    only_b, only_a = (np.flatnonzero(~np.isin(*each)) for each in ((offsets_b, offsets_a), (offsets_a, offsets_b)))
    yield from _runs("missing in A", wanted.key, (None, two), only_b, snapshots)
    yield from _runs("missing in B", wanted.key, (one, None), only_a, snapshots)
    _, rows_a, rows_b = np.intersect1d(offsets_a, offsets_b, assume_unique=True, return_indices=True)
    if rows_a.size < one.num_rows or rows_b.size < two.num_rows:
        one, two = one.take(rows_a), two.take(rows_b)
    differ = np.array(list(_differing(one.select(_COMPARED), two.select(_COMPARED), 0)), np.int64)
    yield from _runs("differs", wanted.key, (one, two), differ, snapshots)


def read_range(snapshot: Snapshot, wanted: QueueRange) -> pa.Table:
    """Read a range as far as its records are whole; what is damaged or lost is missing."""
    spec = ScanSpec(columns=_COLUMNS, on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP)
    tasks = snapshot.plan([wanted], max_bytes=1 << 40, spec=spec)
    batches = [batch for task in tasks for batch in snapshot.scan(task, spec)]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in _COLUMNS})


def _differing(one: pa.Table, two: pa.Table, at: int) -> Iterator[int]:
    """Yield the rows that differ: halves of a range are compared until they are equal, or single rows."""
    if one.equals(two):
        return
    if one.num_rows == 1:
        if [*plain_rows(one)] != [*plain_rows(two)]:
            yield at
        return
    half = one.num_rows // 2
    yield from _differing(one.slice(0, half), two.slice(0, half), at)
    yield from _differing(one.slice(half), two.slice(half), at + half)


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table; the order of properties has no meaning."""
    for row in table.to_pylist():
        properties = {name: value for name, value in row["properties"] or () if name != _OF_STORE}
        yield {**row, "properties": properties}


def _runs(
    kind: str, key: QueueKey, tables: Sequence[pa.Table | None], rows: Ints, snapshots: Sequence[Snapshot]
) -> Iterator[Difference]:
    """Group rows into runs of adjacent queue offsets; the table of the store that lacks them is None."""
    table = next(each for each in tables if each is not None)
    offsets = table["queueOffset"].to_numpy()[rows]
    edges = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), rows.size] if rows.size else [0]
    for at, stop in pairwise(edges):
        row = int(rows[at])
        places = [None if each is None else each["physicalOffset"][row].as_py() for each in tables]
        files = [_file(*each) for each in zip(snapshots, places, strict=True)]
        first, end = int(offsets[at]), int(offsets[stop - 1]) + 1
        yield Difference(kind, *key, first, end, stop - at, places[0], files[0], places[1], files[1])


# Digests


class _Range(NamedTuple):
    """Physical offsets, or queue offsets of a queue; half-open."""

    key: QueueKey | None
    start: int
    stop: int


class _Task(NamedTuple):
    side: Side
    ranges: Sequence[_Range]


def write_digests(
    spark: "SparkSession | None",
    store: str | os.PathLike[str],
    file: str,
    *,
    by: str = "log",
    commit_log_paths: Sequence[str] = (),
    processes: int | None = None,
) -> Report:
    """Write digests of the ranges of a store into a file, to compare copies that no machine sees together.

    ::

        machine 1   write_digests ──► file: by, ranges      log        [0, 8 MiB) 5e…        [8 MiB, 16 MiB) 71…
                                                            orders/0   [0, 4096) a0…         [4096, 6000) 3b…
        machine 2   compare_digests ──► the same ranges of its store ──► equal, differs, missing in A or B

    Ranges end at multiples of their size, so that a store without the oldest messages has whole ranges of the other
    one.

    Parameters
    ----------
    spark, processes
        As for `segmentlog.jobs.diff.run`.
    file
        It is replaced as a whole.
    by
        ``log`` for bytes by physical offset, ``queue`` for messages by queue offset.

    Returns
    -------
    Report
        Numbers, and no rows.

    Raises
    ------
    ConfigError
        If ``by`` is unknown, or the file cannot be written.
    """
    if by not in LEVELS[1:]:
        raise ConfigError(f"by={by!r} is unknown", fix=f"Pass one of {', '.join(LEVELS[1:])}")
    side = Side(os.path.abspath(store), tuple(commit_log_paths))
    ranges = list(_cut(side.open(), by))
    rows = [[*(each.key or (None, None)), each.start, each.stop] for each in ranges]
    found = _digests(spark, side, ranges, processes)
    document = {"by": by, "store": side.path, "ranges": [[*row, text] for row, text in zip(rows, found, strict=True)]}
    try:
        write_whole(file, document, f"{file}.{os.getpid()}.making")
    except OSError as error:
        raise ConfigError(f"--digests: {error.strerror}", path=file, fix="Name a file in a directory") from None
    return report_of(_numbers(by, ranges), [])


def compare_digests(
    spark: "SparkSession | None",
    store: str | os.PathLike[str],
    file: str,
    *,
    commit_log_paths: Sequence[str] = (),
    processes: int | None = None,
) -> Report:
    """Compare a store, B, with the file that `write_digests` made of another one, A.

    Returns
    -------
    Report
        A row per run of adjacent ranges that differ or are missing. Those of the log have no topic, their offsets are
        physical ones. ``notCompared`` counts ranges that B has in part, or no longer.

    Raises
    ------
    FormatError
        If the file is not one of digests.
    """
    by, known = _read(file)
    side = Side(os.path.abspath(store), tuple(commit_log_paths))
    snapshot = side.open()
    spans = _spans(snapshot, by)
    shared = [each for each in known if _is_within(each, spans)]
    found = _digests(spark, side, shared, processes)
    different = [each for each, digest in zip(shared, found, strict=True) if digest != known[each]]
    found_runs = [_difference(snapshot, "differs", each) for each in different]
    ends: dict[QueueKey | None, int] = {}
    for each in known:
        ends[each.key] = max(each.stop, ends.get(each.key, 0))
        first = max(each.start, spans.get(each.key, (0, 0))[1])
        if first < each.stop:
            found_runs.append(_difference(snapshot, "missing in B", each._replace(start=first)))
    for key, (start, stop) in spans.items():
        if (first := max(start, ends.get(key, 0))) < stop:
            found_runs.append(_difference(snapshot, "missing in A", _Range(key, first, stop)))
    numbers = {**_numbers(by, shared), "notCompared": len(known) - len(shared)}
    return report_of(numbers, merged(found_runs))


def _numbers(by: str, ranges: Sequence[_Range]) -> dict[str, int | str]:
    name = "comparedBytes" if by == "log" else "comparedMessages"
    return {"by": by, "ranges": len(ranges), name: sum(each.stop - each.start for each in ranges)}


def _spans(snapshot: Snapshot, by: str) -> dict[QueueKey | None, tuple[int, int]]:
    """Return first offset and end of the log, or of each queue."""
    if by == "log":
        span = log_span(snapshot)
        return {None: (span.start, span.stop)}
    return {key: (each.min_offset, each.max_offset) for key, each in sorted(bounds_of(snapshot).items())}


def _cut(snapshot: Snapshot, by: str) -> Iterator[_Range]:
    step = _LOG_BYTES if by == "log" else _MESSAGES
    for key, (start, stop) in _spans(snapshot, by).items():
        for at in range(start // step * step, stop, step):
            yield _Range(key, max(at, start), min(at + step, stop))


def _is_within(wanted: _Range, spans: Mapping[QueueKey | None, tuple[int, int]]) -> bool:
    start, stop = spans.get(wanted.key, (0, 0))
    return start <= wanted.start and wanted.stop <= stop


def _difference(snapshot: Snapshot, kind: str, found: _Range) -> Difference:
    topic, queue_id = found.key or (None, None)
    messages = 0 if found.key is None else found.stop - found.start
    place, path = (None, None) if kind == "missing in B" else place_in(snapshot, found.key, found.start)
    return Difference(kind, topic, queue_id, found.start, found.stop, messages, None, None, place, path)


def _digests(spark: "SparkSession | None", side: Side, ranges: Sequence[_Range], processes: int | None) -> list[str]:
    tasks = [_Task(side, ranges[at : at + _OF_TASK]) for at in range(0, len(ranges), _OF_TASK)]
    return [each for found in spread(_digest_ranges, tasks, spark, processes=processes) for each in found]


def _digest_ranges(task: _Task) -> list[str]:
    snapshot = task.side.open()
    return [_of_log(snapshot, *each[1:]) if each.key is None else _of_queue(snapshot, each) for each in task.ranges]


def _of_log(snapshot: Snapshot, start: int, stop: int) -> str:
    found = hashlib.sha256()
    for segment in snapshot.log.segments:
        lo, hi = max(start, segment.base), min(stop, segment.stop)
        if lo < hi:
            found.update(snapshot.log.view(segment)[lo - segment.base : hi - segment.base].data)
    return found.hexdigest()


def _of_queue(snapshot: Snapshot, wanted: _Range) -> str:
    assert wanted.key is not None
    found = hashlib.sha256()
    for row in plain_rows(read_range(snapshot, QueueRange(wanted.key, wanted.start, wanted.stop))):
        body = row["body"].hex()
        plain = [row["queueOffset"], body, row["tags"], row["keys"], sorted(row["properties"].items())]
        found.update(json.dumps(plain).encode() + b"\n")
    return found.hexdigest()


def _read(file: str) -> tuple[str, dict[_Range, str]]:
    """Return the level and the digests of a file."""
    try:
        with open(file, encoding="utf-8") as opened:
            content = json.load(opened)
        found = {}
        for topic, queue_id, start, stop, digest in content["ranges"]:
            key = None if topic is None else QueueKey(str(topic), int(queue_id))
            found[_Range(key, int(start), int(stop))] = str(digest)
        by = content["by"]
    except OSError as error:
        raise ConfigError(f"--against: {error.strerror}", path=file, fix="Name the file of --digests") from None
    except (ValueError, KeyError, TypeError) as error:
        problem = f"this is not a file of digests: {error!r}"
        raise FormatError(problem, path=file, fix="Name the file of --digests, or write it again") from None
    if by not in LEVELS[1:]:
        raise FormatError(f"digests by {by!r} are unknown", path=file, fix="Write the file again with this release")
    return by, found
