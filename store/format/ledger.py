"""The ledger: the batches that a store holds, so that a repeated one is recognised.

::

    .segmentlog/ledger
    segmentlog-ledger 1 <sequence> <generation> <recorded> <CRC-32 of the rest, 8 hex digits>
    {"app": "5c0e…", "batches": [[41, 17, 0, 1048, 10, …], [42, 18, …]], "queues": [["orders", 0, 0, 9, 10], …]}
    {"app": null, …}                                     one line per application, in the order of their first batches

An application (a streaming query, a ``txnAppId``) numbers its batches, and each number counts once. The last of its
batches are kept with their physical offsets, the newest also with its range in each queue. Batches that cannot be
repeated have no application; of them only the newest is kept. The file is replaced as a whole: at that moment a batch
is committed. All batches of the log are in `batch_history`. Ours; RocketMQ has no counterpart.
"""

import json
import unicodedata
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ..errors import FormatError

_TITLE: Final = b"segmentlog-ledger 1 "
KEPT: Final = 16  # batches of one application that are kept; only the number of the newest decides
LOST: Final = -1  # rows of an entry that marks an application of which this log lost all batches from a version on
APP_BYTES_MAX: Final = 255  # largest name of an application in UTF-8
VERSION_MAX: Final = 1 << 62  # largest number of a batch, and largest physical offset: sums of two are within 64 bits
_DIGEST_MAX: Final = (1 << 64) - 1


class QueueSpan(NamedTuple):
    """Queue offsets of a batch in one queue: those of its first and last row, and the number of rows."""

    topic: str
    queue_id: int
    first: int
    last: int
    rows: int


class LedgerEntry(NamedTuple):
    version: int  # number of the batch, as its application counts
    sequence: int  # number of the batch, as the store counts
    start: int  # physical offset
    stop: int  # physical offset
    rows: int  # number of records; `LOST` if the entry is only a mark
    bytes: int  # of the records
    committed_ms: int  # time of the append, ms since 1970
    digest: int | None = None  # see `staged_rows.row_digest`; None if unknown


class Batch(NamedTuple):
    """An entry, and the application that it belongs to; None if the batch cannot be repeated."""

    app: str | None
    entry: LedgerEntry


class Application(NamedTuple):
    """Batches of one application: its last ones, ascending, and the queues of the newest."""

    entries: tuple[LedgerEntry, ...]
    queues: tuple[QueueSpan, ...]

    @property
    def newest(self) -> LedgerEntry:
        return self.entries[-1]

    def find(self, version: int) -> LedgerEntry | None:
        """The entry of a batch, if it is still kept."""
        return next((entry for entry in self.entries if entry.version == version and entry.rows != LOST), None)


@dataclass(frozen=True, slots=True)
class Ledger:
    sequence: int = 0  # number of the last appended batch; 0 for none
    applications: Mapping[str | None, Application] = field(default_factory=dict)
    """By name; None for batches that cannot be repeated."""
    generation: int = 0  # of the history that the ledger was made from, see `batch_history`
    recorded: int = 0  # bytes of the history's lines before that of the newest batch

    @property
    def newest(self) -> Batch | None:
        """The newest batch of all applications; None without any."""
        found = (Batch(app, held.newest) for app, held in self.applications.items())
        return max(found, key=lambda each: each.entry.sequence, default=None)

    def with_entry(self, app: str | None, entry: LedgerEntry, queues: tuple[QueueSpan, ...]) -> "Ledger":
        """Return a ledger that has one batch more."""
        held = self.applications.get(app)
        before = tuple(each for each in held.entries if each.rows != LOST) if held else ()
        entries = (*before, entry)[-KEPT:] if app is not None else (entry,)
        return replace(
            self,
            sequence=entry.sequence,
            applications={**self.applications, app: Application(entries, queues)},
        )

    def beyond(self, offset: int) -> list[Batch]:
        """Return the batches that end after a physical offset, in the order of the log."""
        found = [Batch(app, each) for app, held in self.applications.items() for each in held.entries]
        return sorted((each for each in found if each.entry.stop > offset), key=lambda each: each.entry.start)


def encode(ledger: Ledger) -> bytes:
    body = b"".join(
        json.dumps({"app": app, "batches": held.entries, "queues": held.queues}, ensure_ascii=False).encode() + b"\n"
        for app, held in ledger.applications.items()
    )
    title = _TITLE + b"%d %d %d " % (ledger.sequence, ledger.generation, ledger.recorded)
    return title + b"%08x\n" % zlib.crc32(body, zlib.crc32(title)) + body


def decode(data: bytes | None, path: str) -> Ledger:
    """Decode the file; an empty ledger for None, and a `FormatError` for damage."""
    # A damaged ledger does not count as empty: batches that are in the log would be appended again.
    if data is None:
        return Ledger()
    title, _, body = data.partition(b"\n")
    front, _, crc = title.rpartition(b" ")
    if front.startswith(_TITLE) and crc == b"%08x" % zlib.crc32(body, zlib.crc32(front + b" ")):
        # The checksum does not prove the origin.
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            applications = dict(_application(json.loads(line)) for line in body.splitlines())
            sequence, generation, recorded = map(int, front.removeprefix(_TITLE).split(b" "))
            if 0 <= sequence <= VERSION_MAX and generation >= 0 <= recorded:
                return Ledger(sequence, applications, generation, recorded)
    raise FormatError(
        f"the ledger of batches is damaged: {len(data)} bytes that are not what was written",
        path=path,
        offset=0,
        fix="Take it from a copy of the store. Without it the appended batches are unknown: if none can be "
        "repeated, delete it together with the file batch beside it",
    )


def check_app(app: str) -> None:
    """Check a name of an application: 1 to 255 bytes of UTF-8 without control characters, else a `ValueError`."""
    if not app:
        raise ValueError("it is empty")
    if any(unicodedata.category(each) in {"Cc", "Cs"} for each in app):
        raise ValueError("it has control characters or lone surrogates")
    if (size := len(app.encode())) > APP_BYTES_MAX:
        raise ValueError(f"it has {size} bytes in UTF-8, and at most {APP_BYTES_MAX} are allowed")


def checked_batch(app: object, numbers: list[object]) -> Batch:
    """Return a batch that was read from a file or a connection; ValueError or TypeError if no store has such a one."""
    entry = LedgerEntry(*numbers)  # type: ignore[arg-type]
    *counts, digest = entry
    if {type(each) for each in counts} != {int} or type(digest) not in {int, type(None)}:
        raise TypeError(app)
    if app is not None:
        if not isinstance(app, str):
            raise TypeError(app)
        check_app(app)
    is_mark = entry.rows == LOST and entry.start == entry.stop and app is not None
    counted = entry._replace(rows=0) if is_mark else entry
    numbered = [each for each in counted[:-1] if each is not None]
    if min(numbered) < 0 or max(numbered) > VERSION_MAX or entry.start > entry.stop:
        raise ValueError(app)
    if not 0 <= (entry.digest or 0) <= _DIGEST_MAX:
        raise ValueError(app)
    return Batch(app, entry)


def _application(said: dict[str, Any]) -> tuple[str | None, Application]:
    """Read one line; ValueError, TypeError or KeyError if it is of another shape."""
    batches = [checked_batch(said["app"], each) for each in said["batches"]]
    queues = tuple(QueueSpan(*each) for each in said["queues"])
    numbers = {type(number) for each in queues for number in each[1:]}
    if not batches or not numbers <= {int} or not all(isinstance(each.topic, str) for each in queues):
        raise ValueError(said["app"])
    return batches[0].app, Application(tuple(each.entry for each in batches), queues)
