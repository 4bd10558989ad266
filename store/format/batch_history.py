"""Batch history: all batches of a log in its order, so that a ledger can be made for every prefix of the log.

::

    .segmentlog/batches
    segmentlog-batches 1 <generation, 10 digits> <dropped, 20 digits>
    <CRC-32, 8 hex digits> [version, sequence, start, stop, rows, bytes, committed_ms, digest, app]
    …                                                                  ascending, and disjoint

    log       ..│ q 1 │ q 2 │...│ job 7 │ q 3 ..│                     end of this log
    history     [q 1] [q 2]     [job 7]  [q 3.......] [q 4]            a replica knows batches before it has them
    ledger      q: 1, 2   job: 7                                       `BatchHistory.ledger_at` the end
                                         ▲ whole_end                   readers see, and a promotion keeps, up to here

The newest batch of the ledger joins the history before the next batch is committed. Its line is the same however often
it is written. ``rows`` of -1 marks an application of which this log lost all
batches from ``version`` on. ``dropped`` counts bytes of lines that were removed after retention deleted their batches.
``generation`` counts how often the history was cut, or taken from a master; it exceeds the ledger's until the ledger
follows. RocketMQ has no counterpart.
"""

import json
import re
import zlib
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from ..errors import FormatError
from .ledger import KEPT, LOST, Application, Batch, Ledger, LedgerEntry, checked_batch

_TITLE: Final = b"segmentlog-batches 1 %010d %020d\n"
_TITLE_PATTERN: Final = re.compile(rb"segmentlog-batches 1 (\d{10}) (\d{20})\n")
TITLE_BYTES: Final = len(_TITLE % (0, 0))  # bytes before the first line
_CRC_BYTES: Final = 8


class Title(NamedTuple):
    generation: int = 0  # how often the history was cut, or taken from a master
    dropped: int = 0  # bytes of the lines that were removed from the front of the file

    def encode(self) -> bytes:
        return _TITLE % self


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """Batches of one log, ascending by physical offset."""

    batches: tuple[Batch, ...] = ()

    def joined(self, ledger: Ledger) -> Self:
        """Return the history with the newest batch of a ledger, whose line may not be written yet."""
        newest = ledger.newest
        if newest is None or (self.batches and newest.entry.sequence <= self.batches[-1].entry.sequence):
            return self
        return type(self)((*self.batches, newest))

    def beyond(self, end: int) -> tuple[Batch, ...]:
        """Return the batches that end after a physical offset."""
        return self.batches[bisect_right(self.batches, end, key=_stop) :]

    def whole_end(self, end: int) -> int:
        """Return where a log that ends at ``end`` ends without the batch that it has a part of."""
        at = bisect_right(self.batches, end, key=_stop)
        return min(end, self.batches[at].entry.start) if at < len(self.batches) else end

    def up_to(self, end: int) -> Self:
        """Return the history of a log that was cut at ``end``; it names applications that lost all batches."""
        at = bisect_right(self.batches, end, key=_stop)
        whole, lost = self.batches[:at], self.batches[at:]
        known = {each.app for each in whole}
        marks: dict[str | None, Batch] = {}
        for app, entry in lost:
            if app is not None and app not in known and app not in marks:
                mark = entry._replace(start=end, stop=end, rows=LOST, bytes=0, digest=None)
                marks[app] = Batch(app, mark)
        return type(self)((*whole, *marks.values()))

    def compacted(self, first: int, kept: Ledger, count_max: int) -> Self:
        """Return a shorter history: batches that retention deleted go, and the oldest of too many are merged."""
        # A merged batch hides more of the log from readers of a replica, and never less. Batches of the ledger `kept`
        # stay as they are; `first` is the first physical offset of the log.
        numbers = {each.sequence for held in kept.applications.values() for each in held.entries}
        at = bisect_right(self.batches, first, key=_stop)
        found = [each for each in self.batches[:at] if each.entry.sequence in numbers]
        rest = self.batches[at:]
        half = len(rest) // 2 if len(rest) > count_max else 0
        for each in rest[:half]:
            is_single = each.entry.sequence in numbers or each.entry.rows == LOST
            if not is_single and found and found[-1].app is None and found[-1].entry.sequence not in numbers:
                found[-1] = _merged(found[-1].entry, each.entry)
            else:
                found.append(each if is_single else Batch(None, each.entry))
        return type(self)((*found, *rest[half:]))

    def ledger_at(self, end: int, former: Ledger, *, sequence: int = 0) -> Ledger:
        """Return the ledger of a log that ends at ``end``; ``former`` has the queues of the newest batches."""
        entries: dict[str | None, list[LedgerEntry]] = {}
        for app, entry in self.up_to(end).batches:
            entries.setdefault(app, []).append(entry)
        applications = {}
        for app, found in entries.items():
            held = former.applications.get(app)
            queues = held.queues if held is not None and held.newest == found[-1] else ()
            applications[app] = Application(tuple(found[-KEPT:] if app is not None else found[-1:]), queues)
        last = self.batches[-1].entry.sequence if self.batches else 0
        return Ledger(max(sequence, last, former.sequence), applications)


def _stop(batch: Batch) -> int:
    return batch.entry.stop


def _merged(one: LedgerEntry, after: LedgerEntry) -> Batch:
    rows, size = one.rows + after.rows, one.bytes + after.bytes
    return Batch(None, after._replace(start=one.start, rows=rows, bytes=size, digest=None))


def encode_line(batch: Batch) -> bytes:
    """Encode the line of one batch."""
    content = json.dumps([*batch.entry, batch.app], ensure_ascii=False, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(content), content)


def newest_line(ledger: Ledger) -> bytes:
    """Encode the line of a ledger's newest batch, which the history may lack; no bytes for a ledger without batches."""
    return encode_line(ledger.newest) if ledger.newest is not None else b""


def encode_lines(history: BatchHistory) -> bytes:
    return b"".join(map(encode_line, history.batches))


def decode_title(data: bytes, path: str) -> Title:
    """Decode the first line of the file; `FormatError` if it is damaged."""
    found = _TITLE_PATTERN.match(data)
    if found is None:
        raise _damaged(path, 0)
    return Title(int(found[1]), int(found[2]))


def decode_lines(data: bytes | memoryview, path: str | None, before: BatchHistory) -> tuple[BatchHistory, int]:
    """Decode lines that continue ``before``; return all batches, and the bytes of whole lines in ``data``."""
    # An incomplete line at the end was being written, or was lost in a power cut. `path` is for errors, None for bytes
    # of a connection.
    found = list(before.batches)
    at, lines = 0, bytes(data).split(b"\n")
    for line in lines[:-1]:
        batch = _batch(line)
        if batch is None and b"\0" in line:
            break  # the size of a file may reach the device before its bytes, which are zeros then
        if batch is None or (found and not _follows(found[-1].entry, batch.entry)):
            raise _damaged(path, TITLE_BYTES + at)
        found.append(batch)
        at += len(line) + 1
    return BatchHistory(tuple(found)), at


def _batch(line: bytes) -> Batch | None:
    """Read one line; None if it is damaged."""
    content = line[_CRC_BYTES + 1 :]
    if line == b"%08x %s" % (zlib.crc32(content), content):
        # The checksum does not prove the origin.
        with suppress(ValueError, TypeError, RecursionError):
            *numbers, app = json.loads(content)
            return checked_batch(app, numbers)
    return None


def _follows(one: LedgerEntry, after: LedgerEntry) -> bool:
    return one.stop <= after.start and one.sequence < after.sequence


def _damaged(path: str | None, offset: int) -> FormatError:
    return FormatError(
        "the history of batches is damaged",
        path=path,
        offset=offset,
        fix="Take it from the copy that the store is from, or connect the store to its master if it is a replica. "
        "Without it, a part of a batch cannot be told from messages",
    )
