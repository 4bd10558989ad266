"""The writers: tasks stage their rows beside the store, the driver appends all of them at once.

::

    planning    writer(schema) ──► SinkPlan                     errors of a write are raised here
    task        write(batches) ──► SinkRows ──► Staging ──► StagedMessage: file, query, batch
    driver      commit([StagedMessage, …]) ──► commit_batch     all rows or none, and each batch once
                abort(…) ──► staged files are deleted

    exactlyOnce=false
    task        write(batches) ──► SinkRows ──► MessageStore.append_batch, taking turns     each row at least once

A task may run twice, also at the same time. Each attempt stages a file of its own name, and only files that came back
in a message are appended. For the commit of a stream Spark makes a new writer, which knows nothing but the messages.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from segmentlog.store import (
    BatchId,
    ConfigError,
    FormatError,
    IllegalMessageError,
    NotAStoreError,
    SegmentLogError,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.sink import (
    Staged,
    Staging,
    commit_batch,
    discard_jobs,
    open_in_turn,
    prepare_store,
    refuse_broker,
    stored_config,
    topic_queues,
)

from ..errors import NotSupportedError, in_spark_words
from ..options.option import Mode
from ..options.write_options import SIZES, WriteOptions
from ..setup.spark_versions import DataSourceStreamArrowWriter
from ..setup.worker_tuning import SentToWorkers, keep_memory, settle_worker
from .rows import Origin, QueueRules, SinkRows, unknown_topic
from .schema import SinkColumns, plan_columns

# Planning on the driver

logger = logging.getLogger(__name__)

_ENTRY_BYTES: Final = 20
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
_TURN_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkPlan:
    """Plan of a write, for its tasks and its commit. Sent to the workers."""

    options: WriteOptions  # `options.config` has the file sizes of an existing store
    columns: SinkColumns
    rules: QueueRules


def plan_write(options: WriteOptions, schema: StructType, mode: Mode) -> SinkPlan:
    """Check a write against the existing store, and create the store if there is none."""
    # A stream plans each of its batches, and only looks; a batch opens the store and closes it again. All errors are
    # raised here, before a row moves.
    columns = plan_columns(schema, options)
    refuse_broker(options.path)
    config = _with_stored_sizes(options)
    try:
        snapshot = Snapshot.open(options.path)
    except NotAStoreError:
        snapshot = None  # or the path holds something else: `prepare_store` raises
    counts = {} if snapshot is None else _queue_counts(snapshot, options)
    if options.topic is not None and not options.create_topic and options.topic not in counts:
        raise unknown_topic(options.topic, "option `topic` asks for")
    if snapshot is None or mode is Mode.BATCH:
        prepare_store(options.path, config)
    rules = QueueRules(
        selector=columns.selector,
        counts=counts,
        default_queues=options.default_queues,
        create_topic=options.create_topic,
        system_topics=options.system_topics,
    )
    return SinkPlan(options=replace(options, config=config), columns=columns, rules=rules)


def _with_stored_sizes(options: WriteOptions) -> StoreConfig:
    """Take the file sizes of the existing store; an option may only repeat them."""
    config = stored_config(options.path, options.config)
    for name in options.sizes:
        field = SIZES[name]
        asked, held = (getattr(each, field) for each in (options.config, config))
        if asked != held:
            scale = _ENTRY_BYTES if field == "queue_segment_entries" else 1
            raise ConfigError(
                f"option `{name}` is {asked * scale}, and the store that is there has {held * scale}",
                path=options.path,
                fix="Leave it out: a store keeps its file sizes",
            )
    return config


def _queue_counts(snapshot: Snapshot, options: WriteOptions) -> Mapping[str, int]:
    """Number of queues of each topic: as it was created, else as many as exist."""
    try:
        made = topic_queues(options.path)
    except FormatError as error:
        if not options.create_topic:
            raise
        logger.warning("%s Topics have as many queues as there are files of", error)
        made = {}
    there = snapshot.topics() if options.topic is None else {options.topic} & set(snapshot.topics())
    found = {name: 1 + max(queue.key.queue_id for queue in snapshot.queues(name)) for name in there if name not in made}
    counts = {**made, **found}
    if options.topic is not None:
        return {name: count for name, count in counts.items() if name == options.topic}
    return counts


# Writers


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedMessage(WriterCommitMessage):
    """Message of one task to the commit."""

    partition: int
    query: str | None  # id of the stream; None for a batch write
    batch: int | None  # number of the micro-batch, as the task was told
    staged: Staged | None  # None if the task appended its rows itself
    rows: int  # number of rows written
    skipped: int  # number of rows left out
    made_topics: dict[str, int]  # queues of topics that the store did not have


class _Writer(SentToWorkers):
    """Common part of batches and streams: staging in the tasks, one commit of their messages."""

    def __init__(self, options: WriteOptions, schema: StructType, mode: Mode) -> None:
        self._plan: SinkPlan = plan_write(options, schema, mode)
        self._job = uuid4().hex

    @in_spark_words()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage one task's rows; `IllegalMessageError` or `UnknownTopicError` for a row that cannot be stored."""
        keep_memory()
        task, plan = TaskContext.get(), self._plan
        assert task is not None
        partition, query, batch = task.partitionId(), task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        options = plan.options
        version = options.version if batch is None else int(batch)
        origin = Origin(app=options.app or query or self._job, version=version or 0, partition=partition)
        rows = SinkRows(plan.columns, options, plan.rules, origin)
        target = (
            _StagedRows(options, self._job_of(query, batch), partition)
            if options.exactly_once
            else _DirectAppend(options)
        )
        with target:
            _write(rows, iterator, target, partition)
            staged = target.finish()
        settle_worker()
        return StagedMessage(
            partition=partition,
            query=query,
            batch=None if batch is None else int(batch),
            staged=staged,
            rows=rows.rows - rows.skipped,
            skipped=rows.skipped,
            made_topics=rows.made_topics,
        )

    @in_spark_words()
    def _append(self, batch_id: BatchId, messages: Sequence[StagedMessage]) -> None:
        """Append the staged rows, unless tasks appended them, or there is nothing to record."""
        options = self._plan.options
        rows, skipped = sum(each.rows for each in messages), sum(each.skipped for each in messages)
        if skipped:
            logger.warning("%s: %d rows without a topic or body were left out", options.path, skipped)
        topics: dict[str, int] = {}
        for message in messages:
            topics |= message.made_topics
        if options.exactly_once and not rows and batch_id.app is None:
            return  # of a stream a batch without a row counts, too: the next one follows on it
        if not options.exactly_once and not topics:
            return  # topics are all that tasks leave to do
        staged = [each.staged for each in sorted(messages, key=lambda each: each.partition) if each.staged is not None]
        committed = commit_batch(
            options.path,
            options.config,
            batch_id,
            staged,
            topics=topics,
            on_changed_replay=options.on_changed_replay,
            wait_s=options.lock_timeout_s,
            replication=options.replication,
        )
        self._sweep({self._batch_of(each.query, each.batch) for each in messages})
        if committed.repeated:
            logger.warning(
                "%s: %s is there already, nothing was appended; it has %d rows, from %d to %d",
                options.path,
                batch_id,
                committed.rows,
                committed.start,
                committed.stop,
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002, N803 - Spark's name
        """Delete the staged files of this job and of all attempts that reported one, failed ones included."""
        self._sweep({self._job, *(each.staged.job for each in _all_staged(messages) if each.staged is not None)})

    def _batch_of(self, query: str | None, batch: int | str | None) -> str:
        """Prefix of the job names of a batch: several drivers may try a stream's batch."""
        return self._job if query is None else f"{query}-{batch}-"

    def _job_of(self, query: str | None, batch: int | str | None) -> str:
        """Job name of the staged files; of one driver, so that it deletes no files of its successor."""
        return self._job if query is None else self._batch_of(query, batch) + self._job

    def _sweep(self, jobs: set[str]) -> None:
        path = self._plan.options.path
        try:
            for job in jobs:
                discard_jobs(path, job)
        except (SegmentLogError, OSError) as error:  # the commit has succeeded, or has raised its own error
            logger.warning("%s: staged rows were left behind: %s", path, error)


class SegmentLogBatchWriter(_Writer, DataSourceArrowWriter):
    """Appends a frame once: all of its rows, or none."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema, Mode.BATCH)
        self._id = BatchId(options.app, options.version or 0)  # refused here, if it is, and not after all is staged

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._append(self._id, _all_staged(messages))


class SegmentLogStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Appends the batches of a stream, each once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema, Mode.STREAM)
        BatchId(options.app, 0)  # as above

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append the staged rows, unless the batch is committed already."""
        staged = _all_staged(messages)
        if not staged:
            # Spark 4.3 runs at least one task per batch; without one, the query is unknown.
            logger.warning("batch %d came without a task: nothing is appended", batchId)
            return
        options = self._plan.options
        known = stream_batch(staged, batchId, options.app) if options.exactly_once else BatchId()
        self._append(known, staged)


def stream_batch(messages: Sequence[StagedMessage], batch: int, app: str | None) -> BatchId:
    """Return the batch that the messages of all tasks belong to; ``app`` replaces the id of the query."""
    # An exactly-once append is impossible if messages disagree, or name no query.
    said = {(each.query, each.batch) for each in messages}
    (query, number), *others = sorted(said, key=str)
    name = app or query
    if others or name is None or number != batch:
        raise NotSupportedError(
            f"Spark commits batch {batch}, and its tasks say they are of "
            + ", ".join(f"batch {number} of query {query}" for query, number in sorted(said, key=str)),
            fix="Restart the query; if it comes again, write with foreachBatch, txnAppId and txnVersion",
        )
    return BatchId(name, batch, contiguous=True)


def _all_staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    return [each for each in messages if isinstance(each, StagedMessage)]


def _write(
    rows: SinkRows, batches: Iterator[pa.RecordBatch], target: "_StagedRows | _DirectAppend", partition: int
) -> None:
    for batch in _pieces(batches):
        first = rows.rows
        for native in rows.convert(batch):
            try:
                target.add(native)
            except IllegalMessageError as error:
                # The store counts the rows that it was given, without the rows left out before.
                where = f"counted from row {first} of Spark partition {partition}"
                raise error.restated(f"{error.problem}; {where}") from None


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join Spark's batches of 10,000 rows, if they are small, to some megabytes: each piece has a cost of its own."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        if waiting and held + batch.nbytes > _PIECE_BYTES:
            yield _joined(waiting)
            waiting, held = [], 0
        waiting.append(batch)
        held += batch.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # which would copy a single one


class _StagedRows(ExitStack):
    """Stages rows, in a file that is made for the first of them."""

    def __init__(self, options: WriteOptions, job: str, partition: int) -> None:
        super().__init__()
        self._options, self._job, self._partition = options, job, partition
        self._staging: Staging | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._staging is None:
            options = self._options
            staging = Staging.open(options.path, self._job, self._partition, uuid4().hex, options.config)
            self._staging = self.enter_context(staging)
        self._staging.add(batch)

    def finish(self) -> Staged | None:
        """Close the staged file and describe it; None if there was no row."""
        return None if self._staging is None else self._staging.finish()


class _DirectAppend(ExitStack):
    """Appends rows to the store without staging, some megabytes a turn: other tasks want theirs."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__()
        self._options = options
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep the rows of a batch until there are enough to append, or until the end."""
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _TURN_BYTES:
            self.finish()

    def finish(self) -> None:
        if not self._waiting:
            return
        options = self._options
        if options.replication is not None:
            options.replication.check(options.path)
        with open_in_turn(options.path, options.config, wait_s=options.lock_timeout_s) as store:
            for batch in self._waiting:
                store.append_batch(batch)
            end = store.end_offset
        if options.replication is not None:
            options.replication.wait(options.path, end)
        self._waiting, self._bytes = [], 0


def refuse_overwrite(mode: Mode) -> NotSupportedError:
    """Error for save mode `overwrite` and output mode `complete`."""
    if mode is Mode.STREAM:
        return NotSupportedError(
            "output mode `complete` replaces what was written before, and a message log keeps what it has",
            fix="Use outputMode('append'); an aggregation needs a watermark for that",
        )
    return NotSupportedError(
        "mode `overwrite` replaces what was written before, and a message log keeps what it has",
        fix="Use .mode('append'), to another directory or topic if the rows are to stand alone",
    )
