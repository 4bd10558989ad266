"""Every error of the project says what was asked, what was found, where, and what to do.

::

    SegmentLogError
    ├── FormatError                 bytes that are not of the layout they are read as
    ├── NotAStoreError              a path that holds no store            (also FileNotFoundError)
    ├── UnsupportedStoreError       a store of a kind that we do not read (RocksDB, DLedger, …)
    ├── UnsafeFileError             a symbolic link, FIFO or device where a plain file belongs
    ├── UnreadableError             a file or directory that this process may not read (also PermissionError)
    ├── UnknownQueueError           a topic or queue that the store does not hold (also KeyError)
    ├── OffsetOutOfRangeError       an offset the queue does not hold (also IndexError)
    ├── DataLossError               messages that were there are gone
    ├── CorruptError                bytes that are not what was written
    │   ├── CorruptRecordError      … in the CommitLog
    │   ├── CorruptQueueError       … in a ConsumeQueue
    │   └── DamagedLogError         … in the CommitLog of a store that is opened for writing
    ├── StoreInUseError             a store that a broker has open, where something was to be written
    ├── StoreClosedError            a store that was closed, or that came along through a fork
    ├── StoreFailedError            a store whose disk failed: nothing is written until it is opened anew
    ├── NoSpaceError                a full disk                           (also OSError)
    ├── StoreIOError                a system call that failed             (also OSError, with its errno)
    │   ├── MissingFileError        … because the file is gone            (also FileNotFoundError)
    │   └── ExistingFileError       … because a file is there             (also FileExistsError)
    ├── FileTooLargeError           a small file of a store that is larger than any that is read
    ├── BatchGapError               a batch whose predecessor never came
    ├── ChangedReplayError          a batch that is repeated with another number of rows
    ├── IllegalMessageError         a message that RocketMQ would refuse  (also ValueError)
    └── ConfigError                 an option or argument that makes no sense
"""

from typing import ClassVar


class SegmentLogError(Exception):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    problem
        What was asked and what was found, one sentence without a full stop.
    path
        The file or directory at fault.
    offset
        Where in it: a physical offset for CommitLog files, else bytes from the start of the file.
    fix
        What the reader of the message can do, one sentence.
    """

    condition: ClassVar[str] = "SEGMENTLOG_ERROR"

    def __init__(
        self, problem: str, *, path: str | None = None, offset: int | None = None, fix: str | None = None
    ) -> None:
        super().__init__(problem)
        self.problem, self.path, self.offset, self.fix = problem, path, offset, fix

    def __str__(self) -> str:
        where = ""
        if self.path is not None:
            path = self.path if self.path.isprintable() else repr(self.path)  # a name may hold a line end, or worse
            where = f" (in {path}" + (f" at offset {self.offset})" if self.offset is not None else ")")
        fix = f" {self.fix}" if self.fix else ""
        return f"[{self.condition}] {self.problem}{where}.{fix}" + ("." if fix and fix[-1] not in ".?!" else "")

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from Spark workers to the driver; Exception would only carry the positional arguments.
        state = {"problem": self.problem, "path": self.path, "offset": self.offset, "fix": self.fix}
        return _revive, (type(self), self.problem), state


def _revive(kind: type[SegmentLogError], problem: str) -> SegmentLogError:
    return kind(problem)


class FormatError(SegmentLogError):
    """Bytes that are not of the layout they are read as."""

    condition = "SEGMENTLOG_BAD_FORMAT"


class NotAStoreError(SegmentLogError, FileNotFoundError):
    """A path that holds no RocketMQ store."""

    condition = "SEGMENTLOG_NOT_A_STORE"

    __str__ = SegmentLogError.__str__  # FileNotFoundError has its own idea


class UnsupportedStoreError(SegmentLogError):
    """A store of a kind that we do not read."""

    condition = "SEGMENTLOG_UNSUPPORTED_STORE"


class UnsafeFileError(SegmentLogError):
    """A symbolic link, FIFO or device where a plain file or directory belongs."""

    condition = "SEGMENTLOG_UNSAFE_FILE"


class UnreadableError(SegmentLogError, PermissionError):
    """A file or directory that this process may not read."""

    condition = "SEGMENTLOG_UNREADABLE"

    __str__ = SegmentLogError.__str__  # PermissionError has its own idea


class UnknownQueueError(SegmentLogError, KeyError):
    """A topic or queue that the store does not hold."""

    condition = "SEGMENTLOG_UNKNOWN_QUEUE"

    __str__ = SegmentLogError.__str__  # KeyError would show its argument's repr


class OffsetOutOfRangeError(SegmentLogError, IndexError):
    """An offset or time that the queue does not hold."""

    condition = "SEGMENTLOG_OFFSET_OUT_OF_RANGE"


class DataLossError(SegmentLogError):
    """Messages that a reader was promised are gone."""

    condition = "SEGMENTLOG_DATA_LOSS"


class CorruptError(SegmentLogError):
    """Bytes that are not what was written."""

    condition = "SEGMENTLOG_CORRUPT"


class CorruptRecordError(CorruptError):
    """A CommitLog record that is damaged, or is not the one its ConsumeQueue entry names."""

    condition = "SEGMENTLOG_CORRUPT_RECORD"


class CorruptQueueError(CorruptError):
    """A ConsumeQueue entry that cannot be one."""

    condition = "SEGMENTLOG_CORRUPT_QUEUE"


class DamagedLogError(CorruptError):
    """Damage in a CommitLog that is to be written on: what lies behind it would be lost."""

    condition = "SEGMENTLOG_DAMAGED_LOG"


class StoreInUseError(SegmentLogError):
    """A store that another process has open, where something was to be written."""

    condition = "SEGMENTLOG_STORE_IN_USE"


class StoreClosedError(SegmentLogError):
    """A store that was closed, or that this process has only because it was forked."""

    condition = "SEGMENTLOG_STORE_CLOSED"


class StoreFailedError(SegmentLogError):
    """A store whose disk failed: what the device holds is not known until the store is opened anew."""

    condition = "SEGMENTLOG_STORE_FAILED"


class NoSpaceError(SegmentLogError, OSError):
    """A file system without room for what was to be written."""

    condition = "SEGMENTLOG_NO_SPACE"

    __str__ = SegmentLogError.__str__  # OSError has its own idea


class StoreIOError(SegmentLogError, OSError):
    """A system call that failed: a broken device, too many open files, a mount that is gone.

    Parameters
    ----------
    problem, path, offset, fix
        As of `SegmentLogError`.
    errno
        The error number of the call, as of any OSError.
    """

    condition = "SEGMENTLOG_IO_ERROR"

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        fix: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(problem, path=path, offset=offset, fix=fix)
        self.errno = errno

    __str__ = SegmentLogError.__str__  # OSError has its own idea

    def __reduce__(self) -> tuple[object, ...]:
        made, arguments, state = super().__reduce__()
        assert isinstance(state, dict)
        return made, arguments, {**state, "errno": self.errno}


class MissingFileError(StoreIOError, FileNotFoundError):
    """A file that does not exist, or no longer: retention deletes files while they are read."""

    condition = "SEGMENTLOG_MISSING_FILE"


class ExistingFileError(StoreIOError, FileExistsError):
    """A file that was to be made and exists."""

    condition = "SEGMENTLOG_EXISTING_FILE"


class FileTooLargeError(SegmentLogError):
    """A file that is read as a whole and is larger than any such file of a store can be."""

    condition = "SEGMENTLOG_FILE_TOO_LARGE"


class BatchGapError(SegmentLogError):
    """A batch of a stream whose predecessor was never appended: rows are missing."""

    condition = "SEGMENTLOG_BATCH_GAP"


class ChangedReplayError(SegmentLogError):
    """A batch that was committed before is repeated with another number of rows."""

    condition = "SEGMENTLOG_CHANGED_REPLAY"


class IllegalMessageError(SegmentLogError, ValueError):
    """A message that RocketMQ would refuse; the problem begins with its name of the status."""

    condition = "SEGMENTLOG_ILLEGAL_MESSAGE"


class ConfigError(SegmentLogError, ValueError):
    """An option or argument that makes no sense, alone or beside another."""

    condition = "SEGMENTLOG_BAD_OPTION"
