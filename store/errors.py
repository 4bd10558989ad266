"""Errors of the store: each states what was asked, what was found, where, and what to do. docs/errors.md lists all.

::

    store raises      problem, path, offset, fix + remedies ──► text in terms of the Python API
    connector, verb   reword(words) ──────────────────────────► text in terms of options, or of flags

The store names no option of Spark and no flag of the command. What a caller can change in its own call is a `Remedy`,
and each interface words it (`connector/errors.py`, `package/command/errors.py`).
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar, Self


class Remedy(Enum):
    """A change to the failed call that avoids the error; the value is its wording for the Python API."""

    SKIP_LOST = "ScanSpec(on_loss=OnLoss.SKIP) goes on without lost messages"
    SKIP_DAMAGED = (
        "ScanSpec(on_corrupt=OnCorrupt.SKIP) goes on without damaged records, and OnCorrupt.NULL keeps their places"
    )
    NAME_COMMIT_LOG = "commit_log_paths names CommitLog directories that are elsewhere"
    READ_ARCHIVE = "archive=… names the archive, and reads its messages with those of the store"
    READ_APPENDED = "ReadFrom.APPENDED reads all messages, whether replicas hold them or not"
    WAIT_LONGER = "A larger wait_s waits longer for the other writer"
    NEW_APP = (
        "A new BatchId.app begins a numbering of its own: its batches are appended, even if some of their rows are "
        "stored already"
    )
    SKIP_CHANGED_REPLAY = "on_changed_replay=OnChangedReplay.SKIP goes on without the rows of such a batch"
    KEEP_DAMAGE = "keep_damage=True archives damaged bytes as they are"
    NAME_CREDENTIALS = "storage={…} passes credentials of the object store"
    LARGER_BODIES = "StoreConfig(max_body_bytes=…) raises the limit; the broker's maxMessageSize has to be as large"
    STORED_SIZES = "StoreConfig has to state the file sizes that the store was written with"
    READ_SEVERAL = "segmentlog.open_stores(pattern) opens all of them"
    CUT_DAMAGE = (
        "MessageStore.open(path, on_damage=OnDamage.CUT) ends the log before the damage, as brokers do, and loses what "
        "follows"
    )


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
        What to do in any case, one sentence that names no argument of any interface.
    remedies
        What to change in the failed call.
    """

    condition: ClassVar[str] = "SEGMENTLOG_ERROR"
    _more: ClassVar[tuple[str, ...]] = ()  # attributes that a kind of error has beside these

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        fix: str | None = None,
        remedies: Iterable[Remedy] = (),
    ) -> None:
        super().__init__(problem)
        self.problem, self.path, self.offset = problem, path, offset
        self.remedies = tuple(remedies)
        self._fix = fix
        self._words = {remedy: remedy.value for remedy in self.remedies}

    @property
    def fix(self) -> str | None:
        """Advice: what to do in any case, then every remedy as the interface words it; None without any."""
        return ". ".join(filter(None, [self._fix, *self._words.values()])) or None

    def reword(self, words: Mapping[Remedy, str]) -> None:
        """State the remedies in terms of another interface; those that it has no words for are left out."""
        self._words = {remedy: words[remedy] for remedy in self.remedies if remedy in words}

    def restated(self, problem: str, *, path: str | None = None) -> Self:
        """Return an error of the same kind with another problem, the same advice, and another path if one is named."""
        made = type(self)(problem, path=path or self.path, offset=self.offset, fix=self._fix, remedies=self.remedies)
        made.reword(self._words)
        return made

    @property
    def described(self) -> str:
        """Condition, problem and place, without advice: for a log line about something that was passed over."""
        where = ""
        if self.path is not None:
            path = self.path if self.path.isprintable() else repr(self.path)  # a name may hold a line end, or worse
            where = f" (in {path}" + (f" at offset {self.offset})" if self.offset is not None else ")")
        return f"[{self.condition}] {self.problem}{where}"

    def __str__(self) -> str:
        fix = f" {self.fix}" if self.fix else ""
        return f"{self.described}.{fix}" + ("." if fix and fix[-1] not in ".?!" else "")

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from Spark workers to the driver; Exception would only carry the positional arguments.
        # Not all of them are in __dict__: `path` of an ImportError is not.
        names = ("problem", "path", "offset", "remedies", "_fix", "_words", *self._more)
        return _revive, (type(self), self.problem), {name: getattr(self, name) for name in names}


def _revive(kind: type[SegmentLogError], problem: str) -> SegmentLogError:
    return kind(problem)


class FormatError(SegmentLogError):
    """Bytes that are not of the layout they are read as."""

    condition = "SEGMENTLOG_BAD_FORMAT"


class NotAStoreError(SegmentLogError, FileNotFoundError):
    """A path that holds no RocketMQ store."""

    condition = "SEGMENTLOG_NOT_A_STORE"


class UnsupportedStoreError(SegmentLogError):
    """A store of a kind that we do not read."""

    condition = "SEGMENTLOG_UNSUPPORTED_STORE"


class UnsafeFileError(SegmentLogError):
    """A symbolic link, FIFO or device where a plain file or directory belongs."""

    condition = "SEGMENTLOG_UNSAFE_FILE"


class UnreadableError(SegmentLogError, PermissionError):
    """A file or directory that this process may not read."""

    condition = "SEGMENTLOG_UNREADABLE"


class UnknownQueueError(SegmentLogError, KeyError):
    """A topic or queue that the store does not hold."""

    condition = "SEGMENTLOG_UNKNOWN_QUEUE"


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
    """Damage in a CommitLog that is to be written on: records after it would be lost."""

    condition = "SEGMENTLOG_DAMAGED_LOG"


class StoreInUseError(SegmentLogError):
    """A store that another process has open, where something was to be written."""

    condition = "SEGMENTLOG_STORE_IN_USE"


class StoreClosedError(SegmentLogError):
    """A store that was closed, or that this process has only because it was forked."""

    condition = "SEGMENTLOG_STORE_CLOSED"


class StoreFailedError(SegmentLogError):
    """A store whose disk failed, or a write of which was interrupted: open it again, and recovery decides."""

    condition = "SEGMENTLOG_STORE_FAILED"


class NoSpaceError(SegmentLogError, OSError):
    """A file system without room for what was to be written."""

    condition = "SEGMENTLOG_NO_SPACE"


class StoreIOError(SegmentLogError, OSError):
    """A system call that failed: a broken device, too many open files, a mount that is gone.

    ``errno`` is the error number of the call, as of any OSError.
    """

    condition = "SEGMENTLOG_IO_ERROR"
    _more = ("errno",)

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        fix: str | None = None,
        remedies: Iterable[Remedy] = (),
        errno: int | None = None,
    ) -> None:
        super().__init__(problem, path=path, offset=offset, fix=fix, remedies=remedies)
        self.errno = errno


class MissingFileError(StoreIOError, FileNotFoundError):
    """A file that does not exist, or no longer: retention deletes files while they are read."""

    condition = "SEGMENTLOG_MISSING_FILE"


class MissingObjectError(StoreIOError):
    """An object that a manifest or a list names, and that does not exist: it was deleted after the store was opened."""

    # Not a `MissingFileError`: retention deletes files of a directory, with their messages, and readers pass over them.

    condition = "SEGMENTLOG_MISSING_OBJECT"


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


class ReplicationError(SegmentLogError):
    """A peer of a replication that is silent, hostile or out of step; a replica connects again."""

    condition = "SEGMENTLOG_REPLICATION"


class DivergedLogError(ReplicationError):
    """A master whose log does not continue the replica's: nothing is appended or truncated."""

    condition = "SEGMENTLOG_DIVERGED_LOG"


class StaleMasterError(ReplicationError):
    """A master that another store was promoted over: nothing that it appends since is confirmed."""

    condition = "SEGMENTLOG_STALE_MASTER"


class ReplicaTimeoutError(ReplicationError):
    """An append that is in this log and was not acknowledged by enough replicas in time (FLUSH_SLAVE_TIMEOUT)."""

    condition = "SEGMENTLOG_REPLICA_TIMEOUT"


class NoReplicaError(ReplicationError):
    """An append that is in this log, and for which too few replicas are in sync (SLAVE_NOT_AVAILABLE)."""

    condition = "SEGMENTLOG_NO_REPLICA"


class UnconfirmedError(ReplicationError):
    """A read of confirmed messages where no master says, or does not say again yet, which messages are confirmed."""

    condition = "SEGMENTLOG_UNCONFIRMED"


class BrokerError(SegmentLogError):
    """A broker or name server that cannot be reached, refuses a request, or answers with other bytes."""

    condition = "SEGMENTLOG_BROKER"


class MissingExtraError(SegmentLogError, ImportError):
    """A package of an extra that is not installed."""

    condition = "SEGMENTLOG_MISSING_EXTRA"


class ConfigError(SegmentLogError, ValueError):
    """An option or argument that makes no sense, alone or beside another."""

    condition = "SEGMENTLOG_BAD_OPTION"


class FilterSyntaxError(ConfigError):
    """SQL92 filter that RocketMQ refuses, or of which it ignores a part.

    ``position`` is the index of the character at fault; the length of the text where it ends too early.
    """

    condition = "SEGMENTLOG_FILTER_SYNTAX"
    _more = ("position",)

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        fix: str | None = None,
        remedies: Iterable[Remedy] = (),
        position: int = 0,
    ) -> None:
        super().__init__(problem, path=path, offset=offset, fix=fix, remedies=remedies)
        self.position = position

    def restated(self, problem: str, *, path: str | None = None) -> Self:
        """Return an error with another problem, as of `SegmentLogError`, at the same position."""
        made = super().restated(problem, path=path)
        made.position = self.position
        return made
