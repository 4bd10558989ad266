"""Files of one log in order, each named by the offset of its first byte.

::

    00000000000000000000        00000000001073741824        00000000002147483648
    [ base 0 ............ ]     [ base 2^30 ......... ]     [ base 2^31 ......... ]

RocketMQ: ``MappedFileQueue``. The size of a file is not written anywhere but in its length; a file that a copy cut
short is a shorter segment, a missing one a gap, and neither is fatal to a reader.
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import UnsafeFileError
from .fs import FileSystem

_log = logging.getLogger(__name__)


class SegmentFile(NamedTuple):
    """One file: offsets ``[base, base + size)`` of its log."""

    base: int
    size: int
    path: str

    @property
    def stop(self) -> int:
        """The offset after its last byte."""
        return self.base + self.size


def list_segments(fs: FileSystem, directories: Sequence[str]) -> list[SegmentFile]:
    """The segments in one or several directories, by base offset.

    Names that are no decimal number are left alone (a broker would refuse to start; a copy may hold anything). A base
    that two directories hold is taken from the first.

    Raises
    ------
    UnsafeFileError
        If a segment is a symbolic link.
    """
    found: dict[int, SegmentFile] = {}
    for directory in directories:
        for name, is_dir, is_link in fs.list_dir(directory):
            path = os.path.join(directory, name)
            if is_dir or not (name.isascii() and name.isdecimal()) or len(name) > 20:
                _log.debug("ignoring %s: not a segment", path)
                continue
            if is_link:
                raise UnsafeFileError("this segment is a symbolic link", path=path, fix="Put the file itself there")
            base = int(name)
            size = fs.size(path)
            if size is None or base + size >= 1 << 63:
                continue
            if base in found:
                _log.warning("%s is left out: %s has the same base offset", path, found[base].path)
                continue
            found[base] = SegmentFile(base, size, path)
    return [found[base] for base in sorted(found)]


def find(segments: Sequence[SegmentFile], offset: int) -> SegmentFile | None:
    """The segment that holds an offset, or None."""
    index = bisect_right(segments, offset, key=lambda s: s.base) - 1
    if index < 0 or offset >= segments[index].stop:
        return None
    return segments[index]
