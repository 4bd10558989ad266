"""Digests of the ranges of a store: copies compared that no machine sees together.

::

    machine 1   write_digests ──► file: by, ranges      log        [0, 8 MiB) 5e…        [8 MiB, 16 MiB) 71…
                                                        orders/0   [0, 4096) a0…         [4096, 6000) 3b…
    machine 2   compare_digests ──► the same ranges of its store ──► equal, differs, missing in A or B

Ranges end at multiples of their size, so that a store without the oldest messages has whole ranges of the other one.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from segmentlog.store import ConfigError, FormatError, QueueKey, QueueRange, StoreReader
from segmentlog.store.maintenance import Difference, Side, log_span, merged

from .diff import LEVELS, bounds_of, place_in, plain_rows, read_range, report_of
from .report import Report
from .spread import spread
from .state_file import write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_BYTES: Final = 8 << 20
_MESSAGES: Final = 1 << 12
_OF_TASK: Final = 8
"""Ranges that a task reads."""


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
    """Write digests of a store into a file, for `compare_digests` elsewhere.

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
        write_whole(file, document, f"{file}.making")
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
    reader = side.open()
    spans = _spans(reader, by)
    shared = [each for each in known if _is_within(each, spans)]
    found = _digests(spark, side, shared, processes)
    different = [each for each, digest in zip(shared, found, strict=True) if digest != known[each]]
    found_runs = [_difference(reader, "differs", each) for each in different]
    ends: dict[QueueKey | None, int] = {}
    for each in known:
        ends[each.key] = max(each.stop, ends.get(each.key, 0))
        first = max(each.start, spans.get(each.key, (0, 0))[1])
        if first < each.stop:
            found_runs.append(_difference(reader, "missing in B", each._replace(start=first)))
    for key, (start, stop) in spans.items():
        if (first := max(start, ends.get(key, 0))) < stop:
            found_runs.append(_difference(reader, "missing in A", _Range(key, first, stop)))
    numbers = {**_numbers(by, shared), "notCompared": len(known) - len(shared)}
    return report_of(numbers, merged(found_runs))


def _numbers(by: str, ranges: Sequence[_Range]) -> dict[str, int | str]:
    name = "comparedBytes" if by == "log" else "comparedMessages"
    return {"by": by, "ranges": len(ranges), name: sum(each.stop - each.start for each in ranges)}


def _spans(reader: StoreReader, by: str) -> dict[QueueKey | None, tuple[int, int]]:
    """Return first offset and end of the log, or of each queue."""
    if by == "log":
        span = log_span(reader)
        return {None: (span.start, span.stop)}
    return {key: (each.min_offset, each.max_offset) for key, each in sorted(bounds_of(reader).items())}


def _cut(reader: StoreReader, by: str) -> Iterator[_Range]:
    step = _LOG_BYTES if by == "log" else _MESSAGES
    for key, (start, stop) in _spans(reader, by).items():
        for at in range(start // step * step, stop, step):
            yield _Range(key, max(at, start), min(at + step, stop))


def _is_within(wanted: _Range, spans: Mapping[QueueKey | None, tuple[int, int]]) -> bool:
    start, stop = spans.get(wanted.key, (0, 0))
    return start <= wanted.start and wanted.stop <= stop


def _difference(reader: StoreReader, kind: str, found: _Range) -> Difference:
    topic, queue_id = found.key or (None, None)
    messages = 0 if found.key is None else found.stop - found.start
    place, path = (None, None) if kind == "missing in B" else place_in(reader, found.key, found.start)
    return Difference(kind, topic, queue_id, found.start, found.stop, messages, None, None, place, path)


def _digests(spark: "SparkSession | None", side: Side, ranges: Sequence[_Range], processes: int | None) -> list[str]:
    tasks = [_Task(side, ranges[at : at + _OF_TASK]) for at in range(0, len(ranges), _OF_TASK)]
    return [each for found in spread(_digest_ranges, tasks, spark, processes=processes) for each in found]


def _digest_ranges(task: _Task) -> list[str]:
    reader = task.side.open()
    return [_of_log(reader, *each[1:]) if each.key is None else _of_queue(reader, each) for each in task.ranges]


def _of_log(reader: StoreReader, start: int, stop: int) -> str:
    found = hashlib.sha256()
    for segment in reader.log.segments:
        lo, hi = max(start, segment.base), min(stop, segment.stop)
        if lo < hi:
            found.update(reader.log.view(segment)[lo - segment.base : hi - segment.base].data)
    return found.hexdigest()


def _of_queue(reader: StoreReader, wanted: _Range) -> str:
    assert wanted.key is not None
    found = hashlib.sha256()
    for row in plain_rows(read_range(reader, QueueRange(wanted.key, wanted.start, wanted.stop))):
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
