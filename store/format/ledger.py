"""The ledger: the batches that a store holds, so that a repeated one is recognised.

::

    .segmentlog/ledger
    segmentlog-ledger 1 <sequence> <CRC-32 of the rest, 8 hex digits>
    {"app": "5c0e…", "batches": [[41, 17, 0, 1048, 10, …], [42, 18, …]], "queues": [["orders", 0, 0, 9, 10], …]}
                                   a batch without a digest has 7 numbers, as the first ledgers had
    {"app": null, …}                                     one line per application, in the order of their first batches

An application (a streaming query, a ``txnAppId``) numbers its batches, and each number counts once. The last of its
batches are kept with their physical offsets, the newest also with its range in each queue. Batches that cannot be
repeated have no application; of them only the newest is kept. The file is replaced as a whole: at that moment a batch
is committed. Ours; RocketMQ has no counterpart.
"""

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ..errors import FormatError

_TITLE: Final = b"segmentlog-ledger 1 "
_ANY: Final = 1 << 63
KEPT: Final = 16
"""Batches of one application that are kept: the number of the newest is what counts."""


class QueueSpan(NamedTuple):
    """Queue offsets of a batch in one queue.

    Attributes
    ----------
    topic, queue_id
        Which queue.
    first, last
        Queue offsets of the first and the last row.
    rows
        How many they are.
    """

    topic: str
    queue_id: int
    first: int
    last: int
    rows: int


class LedgerEntry(NamedTuple):
    """One batch.

    Attributes
    ----------
    version
        Its number, as its application counts.
    sequence
        Its number, as the store counts batches.
    start, stop
        Physical offsets between which its records are.
    rows, bytes
        How many records, and their bytes.
    committed_ms
        When it was appended, ms since the epoch.
    digest
        See `row_digest.row_digest`; None if the ledger that the entry is from has none.
    """

    version: int
    sequence: int
    start: int
    stop: int
    rows: int
    bytes: int
    committed_ms: int
    digest: int | None = None


@dataclass(frozen=True, slots=True)
class Application:
    """Batches of one application: its last ones, ascending, and the queues of the newest."""

    entries: tuple[LedgerEntry, ...]
    queues: tuple[QueueSpan, ...]

    @property
    def newest(self) -> LedgerEntry:
        """The entry of the newest batch."""
        return self.entries[-1]

    def find(self, version: int) -> LedgerEntry | None:
        """The entry of a batch, if it is still kept."""
        return next((entry for entry in self.entries if entry.version == version), None)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Content of a ledger.

    Attributes
    ----------
    sequence
        Number of the last batch that was appended; 0 for none.
    applications
        By name; None for batches that cannot be repeated.
    """

    sequence: int = 0
    applications: Mapping[str | None, Application] = field(default_factory=dict)

    def with_entry(
        self, app: str | None, entry: LedgerEntry, queues: tuple[QueueSpan, ...], *, durable: int = _ANY
    ) -> "Ledger":
        """Return a ledger that has one batch more.

        Parameters
        ----------
        durable
            Physical offset up to which the log is on the device, if not all of it is. Batches that end later are kept,
            however many they are: recovery has to know where they begin.
        """
        held = self.applications.get(app)
        before = held.entries if held else ()
        kept = max(KEPT - 1 if app is not None else 0, sum(each.stop > durable for each in before))
        entries = (*before[len(before) - min(kept, len(before)) :], entry)
        return replace(
            self,
            sequence=entry.sequence,
            applications={**self.applications, app: Application(entries, queues)},
        )

    def beyond(self, offset: int) -> list[tuple[str | None, LedgerEntry]]:
        """Return the batches that end after a physical offset, with their applications, in the order of the log."""
        found = [(app, each) for app, held in self.applications.items() for each in held.entries if each.stop > offset]
        return sorted(found, key=lambda each: each[1].start)

    def whole_end(self, end: int, durable: int) -> int:
        """Return where a log ends of which a power cut took a part, without the batches that are not whole.

        Parameters
        ----------
        end
            Physical offset up to which the records are whole.
        durable
            Physical offset up to which the log was on the device; batches up to there are not asked for.
        """
        return min([end, *(each.start for _, each in self.beyond(max(end, durable)))])

    def up_to(self, end: int, durable: int) -> "Ledger":
        """Return the ledger without the batches of which `whole_end` is ``end``; its sequence stays."""
        lost = {each.sequence for _, each in self.beyond(max(end, durable))}
        applications = {}
        for app, held in self.applications.items():
            entries = tuple(each for each in held.entries if each.sequence not in lost)
            if entries:
                applications[app] = Application(entries, held.queues if entries[-1] is held.newest else ())
        return replace(self, applications=applications)


def encode(ledger: Ledger) -> bytes:
    """Encode the file."""
    body = b"".join(
        json.dumps({"app": app, "batches": held.entries, "queues": held.queues}, ensure_ascii=False).encode() + b"\n"
        for app, held in ledger.applications.items()
    )
    title = _TITLE + str(ledger.sequence).encode() + b" "
    return title + b"%08x\n" % zlib.crc32(body, zlib.crc32(title)) + body


def decode(data: bytes | None, path: str) -> Ledger:
    """Read the bytes of the file; an empty ledger where there is none.

    Raises
    ------
    FormatError
        If it is damaged. It is not taken for empty: batches that are there would be appended again.
    """
    if data is None:
        return Ledger()
    title, _, body = data.partition(b"\n")
    front, _, crc = title.rpartition(b" ")
    if front.startswith(_TITLE) and crc == b"%08x" % zlib.crc32(body, zlib.crc32(front + b" ")):
        # The checksum does not prove the origin.
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            applications = dict(_application(json.loads(line)) for line in body.splitlines())
            return Ledger(int(front.removeprefix(_TITLE)), applications)
    raise FormatError(
        f"the ledger of batches is damaged: {len(data)} bytes that are not what was written",
        path=path,
        offset=0,
        fix="Take it from a copy of the store. Without it the appended batches are unknown: if none can be "
        "repeated, delete it together with the file batch beside it",
    )


def _application(said: dict[str, Any]) -> tuple[str | None, Application]:
    """Read one line; ValueError, TypeError or KeyError if it is of another shape."""
    app = said["app"]
    entries = tuple(LedgerEntry(*each) for each in said["batches"])
    queues = tuple(QueueSpan(*each) for each in said["queues"])
    numbers = [number for each in entries for number in (*each[:-1], each.digest or 0)]
    numbers += [number for each in queues for number in each[1:]]
    if not entries or not (app is None or isinstance(app, str)) or {type(number) for number in numbers} != {int}:
        raise ValueError(app)
    if not all(isinstance(each.topic, str) for each in queues):
        raise TypeError(app)
    return app, Application(entries, queues)
