"""Files of one log in order, each named by the offset of its first byte.

::

    00000000000000000000        00000000001073741824        00000000002147483648
    [ base 0 ............ ]     [ base 2^30 ......... ]     [ base 2^31 ......... ]

RocketMQ: ``MappedFileQueue``. Only its length states the size of a file. A file that a copy cut short is a shorter
segment, a missing one a gap, and neither is fatal to a reader.
"""

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ..errors import FormatError, UnsafeFileError
from ..format.dledger import HEADER_BYTES
from ..format.store_paths import DLedgerPaths
from .fs import FileSystem, Listed
from .notices import warn_once

_log = logging.getLogger(__name__)

_NAME_CHARS_MAX: Final = 20
_SIZE_MAX: Final = (1 << 31) - 1


class SegmentFile(NamedTuple):
    """One file: offsets ``[base, base + size)`` of its log."""

    base: int
    size: int
    path: str
    lead: int = 0  # bytes before each record, of a DLedger log: the header of its entry

    @property
    def stop(self) -> int:
        """The offset after its last byte."""
        return self.base + self.size

    @property
    def first(self) -> int:
        """The offset of its first record."""
        return self.base + self.lead


def list_segments(fs: FileSystem, directories: Sequence[str]) -> list[SegmentFile]:
    """The segments in one or several directories, by base offset; of two with one base, that of the first directory."""
    # Names other than decimal numbers are left alone (a broker would refuse to start; a copy may hold anything).
    # RocketMQ's sizes are 32-bit: a larger file is a FormatError. A link or directory with such a name is an
    # UnsafeFileError.
    return segments_of({directory: fs.list_dir(directory) for directory in directories})


def lead_in(directory: str) -> int:
    """Return the bytes before each record in the segments of a directory."""
    return 0 if DLedgerPaths.of_data(directory) is None else HEADER_BYTES


def segments_of(listings: Mapping[str, Sequence[Listed]]) -> list[SegmentFile]:
    """The segments among the names of some directories, by base offset; see `list_segments`."""
    found: dict[int, SegmentFile] = {}
    for directory, names in listings.items():
        lead = lead_in(directory)
        for listed in names:
            name = listed.name
            if not (name.isascii() and name.isdecimal()) or len(name) > _NAME_CHARS_MAX:
                _log.debug("ignoring %s/%s: not a segment", directory, name)
                continue
            path = f"{directory}/{name}"
            if listed.is_dir and len(name) < _NAME_CHARS_MAX:
                # Brokers up to 5.1.0 put the light queue `%LMQ%x/1` into the directory of queue 1 of `%LMQ%x`.
                warn_once(_log, path, "%s is left out: it is a directory among files", path)
                continue
            if not listed.is_file:
                raise UnsafeFileError(
                    f"this has the name of a segment and is a {_kind(listed)}",
                    path=path,
                    fix="Put the file itself there, or take it away",
                )
            if listed.size > _SIZE_MAX:
                raise FormatError(
                    f"a segment of {listed.size} bytes, RocketMQ's have at most {_SIZE_MAX}",
                    path=path,
                    fix="Remove this file: it does not belong to the store",
                )
            base = int(name)
            if base + listed.size >= 1 << 63:
                warn_once(_log, path, "%s is left out: no offset is so large", path)
                continue
            if base in found:
                warn_once(_log, path, "%s is left out: %s has the same base offset", path, found[base].path)
                continue
            found[base] = SegmentFile(base, listed.size, path, lead)
    return [found[base] for base in sorted(found)]


def _kind(listed: Listed) -> str:
    if listed.is_link:
        return "symbolic link"
    return "directory" if listed.is_dir else "FIFO, socket or device"


def find(segments: Sequence[SegmentFile], offset: int) -> SegmentFile | None:
    """The segment that holds an offset, or None."""
    index = bisect_right(segments, offset, key=lambda s: s.base) - 1
    if index < 0 or offset >= segments[index].stop:
        return None
    return segments[index]
