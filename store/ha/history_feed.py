"""History feed: the batches of a log, as a server sends them to replicas before the rows.

::

    master    batch in flight ──► ledger ──► no longer in flight ──► end of the log moves over it
    server    end of the log, then the history up to the ledger's newest batch        `HistoryFeed.look`
    wire      [whole history] … [lines that were appended] … [frames of the log up to that end]
    replica   .segmentlog/batches onto the device, then the log                       `IncomingBatches`

    content   [line][line][line]│[line]      the newest batch of the ledger is written to the file with the next commit:
              └ file             └ ledger    the same bytes, so sent lines stay valid

A server of a replica sends its master's history on in the same way. RocketMQ has no counterpart: its slaves get none.
"""

from ..files.small_file import ReplacedFile, read_front
from ..files.writable_fs import WritableFileSystem
from ..format.batch_history import TITLE_BYTES, decode_title, newest_line
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords


class HistoryFeed:
    """Lines of the history of a store that other threads or processes write. Not thread-safe."""

    def __init__(self, fs: WritableFileSystem, path: str) -> None:
        self._fs = fs
        self._records = BatchRecords(fs, path)
        self._history_path = StorePaths(path).batch_history
        self._ledger, self._history = (ReplacedFile(fs, each) for each in (StorePaths(path).ledger, self._history_path))
        self._file_size: int | None = -1  # at the last look that succeeded
        self._is_other = False  # whether the file was replaced since then
        self._in_file = 0  # bytes of lines in the file
        self._newest = b""  # line of the ledger's newest batch, if the file may lack it
        self.generation = 0
        """Number of times that the whole history was replaced."""

    @property
    def size(self) -> int:
        """Bytes of all lines, as of the last look."""
        return self._in_file + len(self._newest)

    def look(self) -> None:
        """Read the ledger and the history if one of them changed; otherwise some system calls.

        Raises `FormatError` if one of them is damaged; the next look reads both again.
        """
        self._is_other |= self._history.look()
        size = self._fs.size(self._history_path)
        if not self._ledger.look() and not self._is_other and size == self._file_size:
            return
        self._file_size = -1
        ledger = self._records.ledger()
        front = read_front(self._fs, self._history_path, TITLE_BYTES)
        if front is not None and (title := decode_title(front, self._history_path)).generation > ledger.generation:
            self._in_file, self._newest = (size or TITLE_BYTES) - TITLE_BYTES, b""  # of a replica
        else:
            self._in_file = ledger.recorded - (title.dropped if front is not None else 0)
            self._newest = newest_line(ledger)
        self.generation += self._is_other
        self._file_size, self._is_other = size, False

    def lines_from(self, position: int) -> bytes:
        """Return the whole lines from a position on, up to the size of the last look."""
        data = b""
        if position < self._in_file:
            data = self._fs.read(self._history_path, TITLE_BYTES + position, self._in_file - position)
        data += self._newest[max(position - self._in_file, 0) :]
        return data[: data.rfind(b"\n") + 1]

    def close(self) -> None:
        """Close the files."""
        self._ledger.close()
        self._history.close()
