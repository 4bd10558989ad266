"""The connector's own errors; the rest are the store's, `StartAfterEndError` and `UnknownTopicError` those of `query`.

Spark shows an error of a Python source inside a traceback. The text of ours begins with ``[SEGMENTLOG_…]``, so that a
search finds it, and is one paragraph.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from segmentlog.store import ConfigError, Remedy, SegmentLogError

SPARK_WORDS: Final[Mapping[Remedy, str]] = {
    Remedy.SKIP_LOST: "failOnDataLoss=false goes on without lost messages",
    Remedy.SKIP_DAMAGED: "corruptRecord=skip goes on without damaged records, corruptRecord=null keeps their places",
    Remedy.NAME_COMMIT_LOG: "commitLogPaths names CommitLog directories that are elsewhere",
    Remedy.READ_ARCHIVE: "archive names the archive, and reads its messages with those of the store",
    Remedy.READ_APPENDED: "readFrom=appended reads all messages, whether replicas hold them or not",
    Remedy.WAIT_LONGER: "A longer lockTimeout waits longer for the other writer",
    Remedy.NEW_APP: "A new txnAppId begins a numbering of its own: its batches are appended, even if some of their "
    "rows are stored already",
    Remedy.SKIP_CHANGED_REPLAY: "onChangedReplay=skip goes on without the rows of such a batch",
    Remedy.KEEP_DAMAGE: "`segmentlog archive push --damaged keep` archives damaged bytes as they are",
    Remedy.NAME_CREDENTIALS: "Options such as storage.aws_access_key_id pass credentials of the object store, and "
    "register(spark) takes the session's fs.s3a, fs.gs and fs.azure settings",
    Remedy.LARGER_BODIES: "A larger maxMessageSize raises the limit; the broker's maxMessageSize has to be as large",
    Remedy.STORED_SIZES: "Leave out mappedFileSizeCommitLog, mappedFileSizeConsumeQueue, maxHashSlotNum and maxIndexNum"
    ": a store keeps its file sizes",
    Remedy.READ_SEVERAL: "path of a read takes a pattern of stores",
    Remedy.CUT_DAMAGE: "In Python, MessageStore.open(path, on_damage=OnDamage.CUT) ends the log before the damage, as "
    "brokers do, and loses what follows: no option of the sink does that",
}
"""Every remedy of the store, in terms of the options of source and sink."""


class MissingOptionError(ConfigError):
    """A required option that is missing."""

    condition = "SEGMENTLOG_MISSING_OPTION"


class UnknownOptionError(ConfigError):
    """An option that does not exist."""

    condition = "SEGMENTLOG_UNKNOWN_OPTION"


class ConflictingOptionsError(ConfigError):
    """Two options that exclude each other."""

    condition = "SEGMENTLOG_CONFLICTING_OPTIONS"


class SchemaError(SegmentLogError, ValueError):
    """A column that the source does not have, or has with another type."""

    condition = "SEGMENTLOG_BAD_SCHEMA"


class CheckpointError(SegmentLogError, ValueError):
    """A checkpoint that is not of this source, or not of this release."""

    condition = "SEGMENTLOG_BAD_CHECKPOINT"


class OtherStoreError(SegmentLogError):
    """A checkpoint of another store, or of a topic that was recreated since."""

    condition = "SEGMENTLOG_OTHER_STORE"


class NotSupportedError(SegmentLogError):
    """A use of the source that it does not offer."""

    condition = "SEGMENTLOG_NOT_SUPPORTED"


@contextmanager
def in_spark_words() -> Iterator[None]:
    """Word the remedies of store errors that are raised inside as options; also a decorator of entry points."""
    try:
        yield
    except SegmentLogError as error:
        error.reword(SPARK_WORDS)
        raise
