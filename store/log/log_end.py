"""End of a log: the walk by which recovery, and readers of a crashed store, find the last record.

::

    [rec][rec][rec?][rec][rec]####[rec]000
                 │            ▲ end    ▲ last
                 │            └ of the records that follow one another      └ of the last whole record
                 └ doubtful: whole by all that RocketMQ checks; reported, and kept

A record ends the log only if it is surely not whole. Its lengths or its place do not fit, or the CRC of its body is
wrong. Those are RocketMQ's rules (``CommitLog.checkMessageAndReturnSize``). A record whose ``__CRC32#`` is wrong or
missing, where others have it, is in doubt only: a broker stores what a client forwarded. Where our own writer put all
records, each must end in a right one. docs/reliability.md lists the rules.
"""

import logging
from typing import Final, NamedTuple

import numpy as np

from ..files.notices import warn_once
from ..format.checksums import ends_in_crc
from ..format.message import RECORD_CRC_BYTES, Ints, Mask, Problem
from ..format.naming import segment_name
from ..format.walk import Walk, walk
from .commit_log import CommitLog

_log = logging.getLogger(__name__)

_DOUBTFUL: Final = (
    "%d records of %s end in a __CRC32# that is not theirs, or lack theirs, the first at physical offset %d: "
    "damaged properties, or a client's that were forwarded; they are kept"
)


class LogState(NamedTuple):
    """Result of a walk over the end of the log.

    Attributes
    ----------
    start
        Where it began.
    end
        Physical offset after the last record that follows on the one before.
    problem
        What is wrong there; empty if there is nothing but zeros.
    beyond
        Whole records after the problem that are not older than those before it.
    newest
        Store time in ms of the newest record up to ``end``; 0 if there is none.
    last
        Physical offset after the last whole record of all, be it beyond a problem or not.
    """

    start: int
    end: int
    problem: str
    beyond: int
    newest: int
    last: int


def examine_log(log: CommitLog, start: int, sealed_from: int | None = None, data_stop: int | None = None) -> LogState:
    """Follow the records to where they end.

    Parameters
    ----------
    start
        Physical offset where a record, or a segment, begins.
    sealed_from
        Where the records begin that all end in a right ``__CRC32#``, if that is known: one without it is torn. Its body
        may be whole, and what the body's CRC does not cover is not.
    data_stop
        Result of an earlier `CommitLog.data_stop`, from which on no record counts; None looks now.
    """
    last = end = min(start, log.stop)
    problem, beyond, newest = "", 0, 0
    doubtful: list[int] = []
    stop = log.data_stop() if data_stop is None else data_stop
    for segment in log.segments:
        if segment.stop <= start:
            continue
        lo = max(start - segment.base, 0)
        if not problem and segment.base + lo != end:
            problem = f"the segment {segment_name(end - end % segment.size)} is missing, is empty, or was not finished"
        view = log.view(segment)
        hi = max(lo, min(view.size, stop - segment.base))  # records begin before it; the last may end in zeros
        walked = walk(view, segment.base, lo, hi)
        records, stops = walked.records, walked.positions + walked.sizes
        log.check_crcs(segment, records)
        sealed = np.zeros(len(records), np.bool_)
        if sealed_from is not None:
            sealed = segment.base + walked.positions >= sealed_from
        doubtful += (segment.base + _keep_doubtful(walked, sealed)).tolist()
        whole = records.problem == Problem.OK
        times = records.field("store_timestamp")
        count = 0
        if not problem:
            follows = np.append(lo, stops)[:-1] == walked.positions
            broken = np.flatnonzero(~(whole & follows))
            count = int(broken[0]) if broken.size else whole.size
            end = segment.base + (int(stops[count - 1]) if count else lo)
            newest = max(newest, int(times[:count].max(initial=0)))
            at = end - segment.base
            if count == whole.size and walked.blank and walked.end == view.size:
                end = segment.stop
            elif count < whole.size and not whole[count] and follows[count]:
                problem = Problem(int(records.problem[count])).text
            elif count < whole.size or hi > at:
                problem = "no whole record follows"
        after = whole & (times >= newest)  # older ones are what a truncation left
        after[:count] = False
        beyond += int(np.count_nonzero(after))
        last = max(last, end, *(segment.base + stops[after][-1:]).tolist())  # a segment made ahead has none
    _warn_doubtful(log, doubtful)
    return LogState(start, end, problem, beyond, newest, last)


def _warn_doubtful(log: CommitLog, doubtful: list[int]) -> None:
    if doubtful:
        warn_once(_log, log.directories[0], _DOUBTFUL, len(doubtful), log.directories[0], doubtful[0])


def _keep_doubtful(walked: Walk, sealed: Mask) -> Ints:
    """Let records count as whole that only their ``__CRC32#`` denies, and those as torn that should have it.

    Parameters
    ----------
    sealed
        (n,) bool, records of which it is known that they end in a right one.

    Returns
    -------
    (m,) int64
        Where in the segment those begin that are in doubt.
    """
    records = walked.records
    if sealed.any():
        ends = ends_in_crc(records.buffer, walked.positions + walked.sizes)
        has = ends & (records.properties_length >= RECORD_CRC_BYTES)
        records.flag_problem(sealed & ~has, Problem.RECORD_CRC)
    doubtful = np.flatnonzero((records.problem == Problem.RECORD_CRC) & ~sealed)
    records.problem[doubtful] = Problem.OK
    return walked.positions[doubtful]
