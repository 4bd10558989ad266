"""A checkpoint of a streaming query: what it says, and what is left of it after an operation.

::

    offsets/N    batch N is to hold these messages    written before the batch is run
    commits/N    batch N has ended                    written after the sink has committed it
                 └ Spark repeats the last batch that has offsets and no commit
"""

import re
from pathlib import Path


class Checkpoint:
    """The directory of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def planned(self) -> int:
        """The last batch that has offsets; -1 without one."""
        return self._last("offsets")

    @property
    def ended(self) -> int:
        """The last batch that Spark knows to have ended; -1 without one."""
        return self._last("commits")

    @property
    def query(self) -> str | None:
        """The query's id; None before it was started."""
        metadata = self.folder / "metadata"
        found = re.search(r'"id":"([^"]+)"', metadata.read_text()) if metadata.exists() else None
        return found[1] if found else None

    def forget_commits(self, batches: int) -> None:
        """Make the last batches unfinished for Spark, as after a crash that follows the sink's commit."""
        self._forget("commits", self.ended - batches)

    def forget_batches(self, batches: int) -> None:
        """Take the checkpoint back by some batches: the first of them is repeated, the others are planned again."""
        last = self.ended - batches
        self._forget("commits", last)
        self._forget("offsets", last + 1)

    def _forget(self, log: str, last: int) -> None:
        for file in (self.folder / log).iterdir():
            number = re.fullmatch(r"\.?(\d+)(\.crc)?", file.name)
            if number is not None and int(number[1]) > last:
                file.unlink()

    def _last(self, log: str) -> int:
        folder = self.folder / log
        names = [file.name for file in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)
