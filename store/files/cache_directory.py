"""CacheDirectory: files outside of any store, each of which can be derived again.

::

    replace   content, CRC32 ──► NAME.making-… ──► rename ──► NAME       nothing is synced: a crash costs the content
    read      NAME ──► mapped ──► CRC32 compared ──► content

Several processes may replace a file at once: each renames a whole one into place.
"""

import contextlib
import os
import zlib
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

_CRC_BYTES: Final = 4
_PRIVATE: Final = 0o700


class CacheDirectory:
    """A directory that is created when something is put into it. `OSError` for what the system refuses."""

    def __init__(self, path: str) -> None:
        self.path = path

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    def read(self, name: str) -> pa.Buffer | None:
        """Return the content of a file, mapped; None if there is no such file, `ValueError` if it is damaged."""
        try:
            data = pa.memory_map(self.path_of(name)).read_buffer()
        except FileNotFoundError:
            return None
        if data.size < _CRC_BYTES or zlib.crc32(data[:-_CRC_BYTES]) != int.from_bytes(data[-_CRC_BYTES:], "big"):
            raise ValueError("it is damaged")
        return data[:-_CRC_BYTES]

    def replace(self, name: str, content: pa.Buffer) -> None:
        """Create or replace a file."""
        os.makedirs(self.path, mode=_PRIVATE, exist_ok=True)
        making = self.path_of(f"{name}.making-{os.urandom(4).hex()}")
        try:
            with open(making, "wb") as file:
                file.write(content)
                file.write(zlib.crc32(content).to_bytes(_CRC_BYTES, "big"))
            os.replace(making, self.path_of(name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(making)
            raise

    def names(self) -> Iterator[str]:
        """Yield the names of the files that are there, whole or not."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield from os.listdir(self.path)

    def remove(self, name: str) -> None:
        """Remove a file, if that is possible."""
        with contextlib.suppress(OSError):
            os.unlink(self.path_of(name))
