"""One process of the mutation attack: damages stores, reads them, and judges what the reader made of it.

::

    test ──► python -m support.mutation_worker plan.json first step ──► one line of JSON a case on stdout
                     │ a death by signal, a hang in C: the line that is missing says which case

A case is nothing but a seed and a number, so each can be run again alone. What it must never do is in `judge`.
"""

import dataclasses
import faulthandler
import hashlib
import json
import logging
import resource
import signal
import sys
import traceback
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import (
    NATIVE_SCHEMA,
    QUEUE_COLUMNS,
    Boundary,
    CorruptError,
    OnCorrupt,
    Predicate,
    QueueKey,
    QueueSource,
    ScanSpec,
    ScanTask,
    SegmentLogError,
    Snapshot,
    Tags,
)
from segmentlog.store.files.fs import FileSystem
from segmentlog.store.groups import group_offsets

from .mutations import DRAWN, LOG, QUEUES, Mutation, StoreImage, mutate, set_field
from .reading import whole_queues

Row = dict[str, Any]

CPU_SECONDS_MAX = 2.0  # of a case that reads a few dozen messages in some milliseconds
WALL_SECONDS_MAX = 60.0
RSS_FACTOR_MAX = 3
ADDRESS_SPACE_BYTES = 4 << 30
SEVERAL_TASKS = 1 / 24  # of the cases, which take four times as long then
LOOKS = 12  # single messages that one case asks for

KEY_COLUMNS = ("topic", "queueId", "queueOffset")
PROPERTY_COLUMNS = ("TAGS", "shop", "__CRC32#")
HEADER_COLUMNS = frozenset(
    (
        *("flag", "sysFlag", "bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "msgId", "reconsumeTimes"),
        *("preparedTransactionOffset", "properties", "tags", "keys", "uniqKey", *PROPERTY_COLUMNS),
    )
)
"""Columns outside the body CRC: damage to them cannot be seen in a record without ``__CRC32#``."""
ENTRY_COLUMNS = frozenset({"tagsCode"})
"""Columns of a ConsumeQueue entry without any CRC; the record confirms its offset and size."""


class Shape(Enum):
    ALL = "all"
    QUEUE = "queue"
    TAGS = "tags"
    TIME = "time"
    PROPERTY = "property"
    RAW = "raw"
    LOOK = "look"


_SHAPES = (Shape.ALL,) * 10 + tuple(s for s in Shape if s is not Shape.ALL)


@dataclass(frozen=True)
class Question:
    """Combination of modes in which a store is read."""

    source: QueueSource
    on_corrupt: OnCorrupt
    shape: Shape
    check_crc: bool
    pieces: int
    """Into how many tasks a store is cut, about; 1 also means one batch."""

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Question":
        return cls(
            source=[QueueSource.AUTO, QueueSource.AUTO, QueueSource.COMMIT_LOG][int(rng.integers(3))],
            on_corrupt=list(OnCorrupt)[int(rng.integers(3))],
            shape=_SHAPES[int(rng.integers(len(_SHAPES)))],
            check_crc=bool(rng.random() < 0.85),
            pieces=4 if rng.random() < SEVERAL_TASKS else 1,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        match self.shape:
            case Shape.QUEUE:
                return tuple(name for name in NATIVE_SCHEMA.names if name in QUEUE_COLUMNS)
            case Shape.PROPERTY:
                return (*KEY_COLUMNS, "properties", "tags")
            case _:
                return tuple(NATIVE_SCHEMA.names)

    def spec(self, snapshot: "Undamaged") -> ScanSpec:
        predicate = Predicate()
        match self.shape:
            case Shape.TAGS:
                predicate = Predicate(filter=Tags(snapshot.tags))
            case Shape.TIME:
                predicate = Predicate(store_time_start=snapshot.times[0], store_time_stop=snapshot.times[1])
        return ScanSpec(
            columns=self.columns,
            property_columns=PROPERTY_COLUMNS if self.shape in {Shape.PROPERTY, Shape.ALL} else (),
            predicate=predicate,
            check_crc=self.check_crc and self.shape is not Shape.QUEUE,
            on_corrupt=self.on_corrupt,
            raw_body=self.shape is Shape.RAW,
            batch_bytes=1 << 20 if self.pieces == 1 else 4000,
        )


class HangError(BaseException):
    """A case took too long."""


class WrongError(AssertionError):
    """The reader did what it must not."""


class Undamaged:
    """A store as it should be, and what is read from it."""

    def __init__(self, snapshot: StoreImage) -> None:
        self.snapshot = snapshot
        self._tables: dict[Question, pa.Table] = {}
        self._rows: dict[tuple[QueueSource, Shape], dict[tuple[Any, ...], Row]] = {}
        self._by_physical: dict[int, Row] = {}
        self._raw_by_physical: dict[int, Row] = {}

    def snapshot_of(self, source: QueueSource, fs: FileSystem | None = None) -> Snapshot:
        return Snapshot.open(self.snapshot.root, queue_source=source, fs=fs or self.snapshot.fs, broker_name="broker")

    def _all(self, source: QueueSource) -> pa.Table:
        return self.table(Question(source, OnCorrupt.NULL, Shape.ALL, check_crc=True, pieces=1))

    @cached_property
    def _whole(self) -> pa.Table:
        return self._all(QueueSource.COMMIT_LOG)

    @cached_property
    def tags(self) -> frozenset[str]:
        return frozenset([*sorted({t for t in self._whole["tags"].to_pylist() if t is not None})[:1], "no such tag"])

    @cached_property
    def times(self) -> tuple[int, int]:
        times = sorted(t.value // 1000 for t in self._whole["storeTimestamp"].drop_null())
        return times[len(times) // 4], times[len(times) * 3 // 4]

    def by_physical(self, shape: Shape) -> dict[int, Row]:
        """Rows by physical offset; bodies as stored if that is asked for."""
        kept = self._by_physical if shape is not Shape.RAW else self._raw_by_physical
        if not kept:
            shown = Shape.RAW if shape is Shape.RAW else Shape.ALL
            whole = self.table(Question(QueueSource.COMMIT_LOG, OnCorrupt.NULL, shown, check_crc=True, pieces=1))
            kept.update({row["physicalOffset"]: row for row in rows_of(whole)})
        return kept

    def table(self, question: Question) -> pa.Table:
        """Return the answer to a question; initial damage causes null rows."""
        asked = dataclasses.replace(question, on_corrupt=OnCorrupt.NULL, check_crc=True, pieces=1)
        if asked not in self._tables:
            self._tables[asked] = in_order(ask(self.snapshot_of(asked.source), self, asked).table)
        return self._tables[asked]

    def rows(self, question: Question) -> dict[tuple[Any, ...], Row]:
        plain = question.shape if question.shape in {Shape.RAW, Shape.QUEUE, Shape.PROPERTY} else Shape.ALL
        if (question.source, plain) not in self._rows:
            rows = rows_of(self.table(dataclasses.replace(question, shape=plain)))
            self._rows[question.source, plain] = {tuple(row[c] for c in KEY_COLUMNS): row for row in rows}
        return self._rows[question.source, plain]


@dataclass(frozen=True)
class Answer:
    """Answer of a reader: rows, and their plan."""

    table: pa.Table
    tasks: list[ScanTask]
    rows: list[int]
    """Number of rows per task."""


def ask(reader: Snapshot, undamaged: Undamaged, question: Question) -> Answer:
    spec = question.spec(undamaged)
    max_bytes = undamaged.snapshot.record_bytes // question.pieces + 1
    tasks = reader.plan(whole_queues(reader), max_bytes=1 << 30 if question.pieces == 1 else max_bytes)
    batches: list[pa.RecordBatch] = []
    counts: list[int] = []
    for task in tasks:
        before = len(batches)
        for batch in reader.scan(task, spec):
            batch.validate(full=True)
            batches.append(batch)
        rows = sum(batch.num_rows for batch in batches[before:])
        counts.append(rows)
        if spec.on_corrupt is OnCorrupt.NULL and spec.predicate == Predicate() and rows != task.rows:
            raise WrongError(f"a task of {task.rows} rows gave {rows}, though nulls stand for damage")
    schema = pa.schema([*(NATIVE_SCHEMA.field(c) for c in spec.columns)])
    schema = pa.schema([*schema, *(pa.field(name, pa.string()) for name in spec.property_columns)])
    return Answer(pa.Table.from_batches(batches, schema), tasks, counts)


def rows_of(table: pa.Table) -> list[Row]:
    """Rows as dictionaries; times as integers, since Python's calendar ends before Arrow's."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table[field.name].cast(pa.int64()))
    rows: list[Row] = table.to_pylist(maps_as_pydicts="lossy")
    return rows


def in_order(table: pa.Table) -> pa.Table:
    """Rows by topic, queue and queue offset: in which order tasks come is the plan's business."""
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in KEY_COLUMNS])).combine_chunks()


def judge(undamaged: Undamaged, mutation: Mutation, question: Question, answer: Answer) -> str:
    expected = undamaged.table(question)
    if answer.table.num_rows == expected.num_rows and in_order(answer.table).equals(expected):
        return "equal"
    originals = undamaged.rows(question)
    wanted = {tuple(row.values()) for row in expected.select(KEY_COLUMNS).to_pylist()}
    free = _free_columns(undamaged.snapshot, mutation, question)
    seen: set[tuple[Any, ...]] = set()
    nulls = differing = 0
    _check_order(answer)
    for row in rows_of(answer.table):
        key = tuple(row[column] for column in KEY_COLUMNS)
        if key in seen:
            raise WrongError(f"{key} came twice")
        seen.add(key)
        if not any(
            r.start <= key[2] < r.stop and (r.key.topic, r.key.queue_id) == key[:2]
            for task in answer.tasks
            for r in task.ranges
        ):
            raise WrongError(f"{key} is in no planned range")
        original = originals.get(key)
        if original is not None and all(original[name] == value for name, value in row.items()):
            if key not in wanted and free.isdisjoint({"storeTimestamp", "tags"}):
                raise WrongError(f"{key} does not match the predicate")
            continue
        if _is_null(row) and question.on_corrupt is OnCorrupt.NULL:
            nulls += 1
            continue
        differing += 1
        _check_difference(undamaged, question, row, original, free)
    told = question.on_corrupt is OnCorrupt.FAIL and question.shape is not Shape.QUEUE
    if told and wanted == originals.keys() and free <= ENTRY_COLUMNS:
        _check_gaps(wanted, seen)
    if differing:
        return "differs where no CRC covers"
    if nulls:
        return "nulls for damage"
    if len(seen) == len(expected):
        return "equal"
    if len(seen) > len(expected):
        return "more rows"
    return "rows missing" if question.on_corrupt is OnCorrupt.SKIP else "rows missing, no error"


def _check_order(answer: Answer) -> None:
    """Within a task messages of a queue come in the order of their queue offsets, damaged or not."""
    columns = [answer.table[name].to_pylist() for name in KEY_COLUMNS]
    start = 0
    for count in answer.rows:
        last: dict[tuple[str, int], int] = {}
        for topic, queue_id, offset in zip(*(column[start : start + count] for column in columns), strict=True):
            if offset <= last.get((topic, queue_id), -1):
                raise WrongError(f"{topic}/{queue_id} {offset} came after {last[topic, queue_id]}")
            last[topic, queue_id] = offset
        start += count


def _check_gaps(expected: Collection[tuple[Any, ...]], seen: Collection[tuple[Any, ...]]) -> None:
    """Without a report of damage, messages may be missing at the ends of a queue only."""
    for queue in {key[:2] for key in seen}:
        offsets = [key[2] for key in seen if key[:2] == queue]
        between = {key[2] for key in expected if key[:2] == queue and min(offsets) < key[2] < max(offsets)}
        missing = between - set(offsets)
        if missing:
            raise WrongError(f"{queue} lacks {sorted(missing)} and nobody was told")


def _free_columns(snapshot: StoreImage, mutation: Mutation, question: Question) -> frozenset[str]:
    """Columns in which a row may differ, since nothing in the store could tell."""
    free: set[str] = set()
    if any(f"/{QUEUES}" in path for path in mutation.changes):
        free |= ENTRY_COLUMNS
        if question.shape is Shape.QUEUE:  # the log is not opened: entries are taken at their word
            free |= {"physicalOffset", "storeSize"}
    if not any(f"/{LOG}" in path for path in mutation.changes):
        return frozenset(free)
    unverified = question.shape is Shape.QUEUE or not question.check_crc or not snapshot.sealed
    if _by_record(snapshot, question) and unverified:
        free |= ENTRY_COLUMNS  # it is the hash of the record's own tags, which no checksum covers
    if question.shape is Shape.QUEUE:
        return frozenset(free)
    if not question.check_crc:
        free |= HEADER_COLUMNS | {"body", "bodyCrc"}
    elif not snapshot.sealed:
        free |= HEADER_COLUMNS
    return frozenset(free)


def _by_record(snapshot: StoreImage, question: Question) -> bool:
    return (
        question.source is QueueSource.COMMIT_LOG
        or f"{snapshot.root}/abort" in snapshot.files
        or not snapshot.kind_of(QUEUES)
    )


def _check_difference(
    undamaged: Undamaged, question: Question, row: Row, original: Row | None, free: frozenset[str]
) -> None:
    """A row is not the original of its place: only what is not covered may differ."""
    if "physicalOffset" in free:
        if original is None:
            return  # an entry that was copied into another queue; only the log could tell
    elif ("flag" in free or question.shape is Shape.QUEUE) and _by_record(undamaged.snapshot, question):
        # Topic, queue and queue offset are not covered by the body CRC either. Where the log alone says to which queue
        # a record belongs, a record may have moved.
        if "physicalOffset" not in row:
            return
        if original is None or original["physicalOffset"] != row["physicalOffset"]:
            original = undamaged.by_physical(question.shape).get(row["physicalOffset"])
            free |= set(KEY_COLUMNS)
    if original is None:
        raise WrongError(f"a row that never was: {_short(row)}")
    different = {name for name, value in row.items() if original[name] != value}
    if "body" in different and "sysFlag" in different and "sysFlag" in free:
        different.discard("body")  # whether and how it is compressed is not covered
    if not different <= free:
        name = min(different - free)
        raise WrongError(
            f"{tuple(row[c] for c in KEY_COLUMNS)} differs in {sorted(different)}; {name}:"
            f" {str(row[name])[:80]!r} for {str(original[name])[:80]!r}"
        )


def _is_null(row: Row) -> bool:
    if QUEUE_COLUMNS.issuperset(row):
        return all(row[name] is None for name in ("physicalOffset", "storeSize", "tagsCode"))
    return all(value is None for name, value in row.items() if name not in QUEUE_COLUMNS)


def _short(row: Row) -> str:
    return str({name: str(value)[:40] for name, value in row.items()})


def look(undamaged: Undamaged, mutation: Mutation, question: Question, reader: Snapshot, rng: Any) -> str:
    snapshot = undamaged.snapshot
    result = "equal"
    for topic in reader.topics():
        for bounds in reader.queues(topic):
            for time in (undamaged.times[0], int(rng.integers(-(1 << 63), 1 << 62))):
                offset = reader.offset_at(bounds.key, time, list(Boundary)[int(rng.integers(2))])
                if not bounds.min_offset <= offset <= bounds.max_offset:
                    raise WrongError(f"offset {offset} at time {time} is not in {bounds}")
    reader.bounds(QueueKey("no such topic", 7))
    group_offsets(reader.path, "readers")
    known = list(undamaged.by_physical(Shape.ALL).items())
    for index in rng.integers(len(known), size=LOOKS):
        offset, original = known[index]
        message = reader.message_at(offset + int(rng.integers(20) == 0))
        if message is None:
            result = "rows missing"
            continue
        found = {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "storeSize": message.store_size,
            "body": message.body,
            "flag": message.flag,
            "sysFlag": message.sys_flag,
            "bornTimestamp": _micros(message.born_timestamp),
            "storeTimestamp": _micros(message.store_timestamp),
            "bornHost": message.born_host,
            "tags": message.tags,
            "properties": message.properties,
        }
        different = {n for n, v in found.items() if (original[n] if original[n] is not None else _EMPTY.get(n)) != v}
        if different:
            result = "differs where no CRC covers"
            free = set(HEADER_COLUMNS | set(KEY_COLUMNS)) if not snapshot.sealed else set()
            if "sysFlag" in different:
                free |= {"body"}
            if not different <= free:
                raise WrongError(f"the message at {offset} differs in {sorted(different)}")
    return result


_EMPTY = {"properties": {}}


def _micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


# One case


Case = tuple[Undamaged, Mutation, Question, np.random.Generator]


@dataclass(frozen=True)
class Plan:
    """Data shared by all processes of a run."""

    seed: int
    copies: int
    table_every: int
    stores: list[dict[str, Any]]


class Attack:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stores = [Undamaged(StoreImage.load(s["name"], Path(s["root"]), sealed=s["sealed"])) for s in plan.stores]
        weights = np.array([s["weight"] for s in plan.stores], float)
        self.weights = weights / weights.sum()
        order = np.random.default_rng(plan.seed)
        tabled = [store for store, s in zip(self.stores, plan.stores, strict=True) if s["table"]]
        table = [(store, target) for store in tabled for target in store.snapshot.table]
        self.table = [table[i] for i in order.permutation(len(table))]

    def case(self, number: int) -> Case:
        """Return case ``number``: every ``table_every``-th is a line of the table of fields, the others are drawn."""
        rng = np.random.default_rng((self.plan.seed, number))
        question = Question.draw(rng)
        if number % self.plan.table_every == 0:
            store, target = self.table[number // self.plan.table_every % len(self.table)]
            return store, set_field(store.snapshot, target), question, rng
        store = self.stores[int(rng.choice(len(self.stores), p=self.weights))]
        drawn = number - number // self.plan.table_every
        mutation = mutate(store.snapshot, DRAWN[drawn % len(DRAWN)], rng)
        return store, mutation, question, rng

    def warm_up(self) -> None:
        """Read every store undamaged in all ways: what that takes is the measure for memory."""
        for store in self.stores:
            for source in QueueSource:
                for shape in Shape:
                    if shape is not Shape.LOOK:
                        question = Question(source, OnCorrupt.NULL, shape, check_crc=True, pieces=1)
                        store.rows(question)
                        store.table(question)

    def run(self, number: int, rss_max_kib: int) -> dict[str, Any]:
        """Run one case and return its counts; a finding is under ``wrong``."""
        case = self.case(number)
        undamaged, mutation, question, _ = case
        digest = hashlib.blake2b(digest_size=12)
        for path, content in sorted(mutation.changes.items()):
            digest.update(path.encode() + b"\0" + (b"gone" if content is None else content))
        result: dict[str, Any] = {
            "case": number,
            "kind": mutation.kind,
            "digest": digest.hexdigest(),
            "live": undamaged.snapshot.hits(mutation.changes),
        }
        what = f"case {number}: {mutation.what}; {question}"
        try:
            result["outcome"] = self._outcome(case)
        except HangError:
            result["wrong"] = f"{what}\nit took more than {CPU_SECONDS_MAX} s:\n{traceback.format_exc(limit=-6)}"
        except WrongError as error:
            result["wrong"] = f"{what}\n{error}"
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            result["wrong"] = f"{what}\n{traceback.format_exc(limit=-8)}"
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if rss > rss_max_kib:
            result["wrong"] = f"{what}\nit made the process grow to {rss} KiB, {rss_max_kib} are allowed"
        return result

    def _outcome(self, case: Case) -> str:
        undamaged, mutation, question, rng = case
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
        try:
            reader = undamaged.snapshot_of(question.source, undamaged.snapshot.fs.with_changes(mutation.changes))
            if question.shape is Shape.LOOK:
                return look(undamaged, mutation, question, reader, rng)
            answer = ask(reader, undamaged, question)
        except SegmentLogError as error:
            _check_error(error)
            return type(error).__name__
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return judge(undamaged, mutation, question, answer)


def _check_error(error: SegmentLogError) -> None:
    str(error)
    if error.path is None or (isinstance(error, CorruptError) and error.offset is None):
        raise WrongError(f"an error that does not say where: {error}") from error


def _hang(_signal: int, _frame: object) -> NoReturn:
    raise HangError


def main(arguments: list[str]) -> None:
    """Run the cases ``first``, ``first + step``, … of a plan."""
    plan = Plan(**json.loads(Path(arguments[0]).read_text()))
    first, step = int(arguments[1]), int(arguments[2])
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    signal.signal(signal.SIGPROF, _hang)
    attack = Attack(plan)
    attack.warm_up()
    rss_max_kib = RSS_FACTOR_MAX * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for line in _lines(attack, range(first, plan.copies, step), rss_max_kib):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _lines(attack: Attack, numbers: range, rss_max_kib: int) -> Iterator[str]:
    for number in numbers:
        yield json.dumps({"begins": number})
        faulthandler.dump_traceback_later(WALL_SECONDS_MAX, exit=True)
        yield json.dumps(attack.run(number, rss_max_kib))
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1:])
