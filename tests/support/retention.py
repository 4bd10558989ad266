"""Retention as a broker does it: whole files go, the oldest first, and never the one that is written to.

::

    commitlog     [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ]       keep 3: 0 and 1 are unlinked, the log begins with 2
                             ▲ first physical offset that is left
    consumequeue  [ a ][ b ][ c ]                 files whose last entry is before it are unlinked too
    index         [ x ][ y ]                      and those that end before it

RocketMQ: ``CleanCommitLogService``, ``CleanConsumeQueueService``, ``IndexService.deleteExpiredFile``. What is mapped
stays readable; what is opened afterwards is not there.
"""

import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ENTRY = struct.Struct(">qiq")
_INDEX_END = struct.Struct(">q")
_INDEX_END_AT = 24
_KEPT_AT_LEAST = 2  # the one that is written to, and the next one, which may be there ahead of its time


@dataclass(slots=True)
class Deleted:
    segments: int = 0
    queue_files: int = 0
    index_files: int = 0


class Retention:
    """Deletes what is old in a store that others write and read."""

    def __init__(self, path: Path | str, keep: int) -> None:
        assert keep >= _KEPT_AT_LEAST
        self._path = Path(path)
        self._keep = keep
        self.deleted = Deleted()

    def tick(self, most: int = 10) -> int:
        """Unlink the first segments, at most so many, then older files; return the number of segments."""
        segments = _files(self._path / "commitlog")
        expired = segments[: max(0, len(segments) - self._keep)][:most]
        for segment in expired:
            segment.unlink()
        if expired:
            self.deleted.segments += len(expired)
            self._clean(int(segments[len(expired)].name))
        return len(expired)

    def _clean(self, log_min: int) -> None:
        for queue in (self._path / "consumequeue").glob("*/*"):
            for file in _files(queue)[:-1]:
                if self._last_physical(file) >= log_min:
                    break
                file.unlink()
                self.deleted.queue_files += 1
        for file in _files(self._path / "index")[:-1]:
            with open(file, "rb") as opened:
                opened.seek(_INDEX_END_AT)
                (end,) = _INDEX_END.unpack(opened.read(_INDEX_END.size))
            if end >= log_min:
                break
            file.unlink()
            self.deleted.index_files += 1

    def _last_physical(self, file: Path) -> int:
        with open(file, "rb") as opened:
            opened.seek(-_ENTRY.size, 2)
            physical, _, _ = _ENTRY.unpack(opened.read(_ENTRY.size))
        return int(physical)


def _files(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(file for file in folder.iterdir() if file.name.isdecimal())
    return []
