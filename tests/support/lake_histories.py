"""Random histories of a table that a backfill shares with maintenance and other writers.

::

    run: plan ── A ──► frame ── B ──► commit ── C ──► next part     at A, B, C: a kill, or another event
    maintenance: tags, branches, expiry, rollback and forward again, compaction, columns, deletion, rules of the table
                                  │
    after each step     no message is there twice
    after a quiet run   each message of the windows that it was asked for is there once, or an error says why not

An error is a finding, too, in a history in which nothing makes it doubtful what the table holds. A table that was
rolled back into the middle of a compaction, where some messages of a part are deleted and not yet added again, is to be
refused: `is_torn` tells.
"""

import contextlib
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import AlwaysTrue

from segmentlog.jobs.backfill import Length, Part, Request, Window
from segmentlog.jobs.backfill.planning import SETTLED_MS, Planner, windows
from segmentlog.jobs.lake import target as target_module
from segmentlog.jobs.lake.target import Attempt, Job
from segmentlog.query.ledgers import TargetUnclearError
from segmentlog.query.source import StoreSource
from segmentlog.store import QueueBounds, QueueKey, SegmentLogError

from .lake import COLUMNS, HOUR_MS, START_MS, Frame, Lake

_DAYS: Final = 3
_STEP_MS: Final = 6 * HOUR_MS
_OF_A_QUEUE: Final = _DAYS * 24 * HOUR_MS // _STEP_MS
_END_MS: Final = START_MS + _DAYS * 24 * HOUR_MS
_QUEUES: Final = (0, 1)
_ZONES: Final = (UTC, timezone(timedelta(hours=6)))
_EVENTS: Final = 8
_DOUBTS: Final = 0.08
Place: TypeAlias = tuple[int, int]
"""Queue id and offset of a message."""
_KILLED: Final = ("write_files", "commit", "committed", "finish")
"""Steps of a run at which it may be killed."""


class Killed(BaseException):
    """Stands for a kill: no handler of the job does anything more."""


class HistoryError(AssertionError):
    """Violated promise, with the history that led to it."""


def _time_of(offset: int) -> int:
    return START_MS + offset * _STEP_MS


def _span(request: Request) -> str:
    return f"[{(request.start_ms - START_MS) / HOUR_MS:g}h, {(request.end_ms - START_MS) / HOUR_MS:g}h)"


def _rows(part: Part) -> pa.Table:
    found = [
        (key.queue_id, offset)
        for key, (first, end) in sorted(part.offsets.items())
        for offset in range(first, end)
        if part.window.start_ms <= _time_of(offset) < part.window.end_ms
    ]
    return _table([queue for queue, _ in found], [offset for _, offset in found])


def _places(rows: pa.Table) -> Iterator[Place]:
    return zip(rows["queueId"].to_pylist(), map(int, rows["body"].to_pylist()), strict=True)


def _table(queues: list[int], offsets: list[int], topic: str = "orders") -> pa.Table:
    count = len(queues)
    times = [_time_of(each) * 1000 for each in offsets]
    values = [[topic] * count, queues, offsets, times, [None] * count, [b"%d" % each for each in offsets]]
    return pa.table([pa.array(each, kind) for each, kind in zip(values, COLUMNS.types, strict=True)], COLUMNS.names)


def is_torn(error: Exception, parts: Iterable[tuple[Window, set[Place]]], there: Container[Place]) -> bool:
    """Tell whether the window that an error names has messages of parts of which the table holds none as a whole.

    ``parts`` are all that were ever written, ``there`` are the messages of the table.
    """
    of_window = [messages for window, messages in parts if str(window) in str(error)]
    whole = {each for messages in of_window if all(each in there for each in messages) for each in messages}
    return any(each in there and each not in whole for messages in of_window for each in messages)


class _Planner(Planner):
    """Planner of a store that exists as a rule: every queue has a message each six hours."""

    def __init__(self, request: Request, now_ms: int) -> None:
        self._request, self._now_ms, self._seen_ms = request, now_ms + SETTLED_MS, now_ms
        end = min(_OF_A_QUEUE, -(-(now_ms - START_MS) // _STEP_MS))
        self._queues = [QueueBounds(QueueKey("orders", each), 0, end) for each in _QUEUES]

        def offset_at(_: QueueKey, ms: int) -> int:
            return min(end, max(0, -(-(ms - START_MS) // _STEP_MS)))

        self._snapshot: Any = SimpleNamespace(
            offset_at=offset_at,
            end_at=offset_at,
            times_fall=False,
            path="/data/store",
            log=SimpleNamespace(segments=()),
            entries=SimpleNamespace(deleted=lambda _: []),
        )


class _Frame(Frame):
    """Frame during whose tasks something else is done."""

    def __init__(self, rows: pa.Table, act: Callable[[], object]) -> None:
        super().__init__(rows)
        self._act = act

    def mapInArrow(self, work: Any, schema: str) -> Frame:  # noqa: N802 - Spark's
        self._act()
        return super().mapInArrow(work, schema)


class History:
    """One history of one table, from a seed."""

    def __init__(self, kind: str, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.kind, self.seed = kind, seed
        self.lake = Lake(kind, directory)
        self.by = self.chance.choice([("day",), ("day", "queue"), ("hour",), ("topic",)])
        self.is_mixed = self.chance.random() < 0.3
        self.zone: tzinfo = self.chance.choice(_ZONES)
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.is_clear = True
        self._is_compacted = self._has_rule = self._is_nested = False
        self._steps = self._runs = 0
        self._known: list[Any] = []
        self._parts: list[tuple[Window, set[Place]]] = []
        self._catalog: Any = None

    def load(self) -> Any:
        """Return the table as it is now."""
        if self.kind == "delta":
            return self.lake.load()
        self._catalog = self._catalog or load_catalog("test", **self.lake.catalog)
        return self._catalog.load_table("lake.messages")

    def play(self) -> Counter[str]:
        """Play the history; `HistoryError` says what is wrong."""
        try:
            self._run(None)
            for _ in range(_EVENTS):
                self._event()
            self._quiet()
        except Exception as error:
            raise HistoryError(f"{self.kind}, seed {self.seed}: {error}; {' | '.join(self.lines)}") from error
        return self.counts

    # Runs

    def _run(self, meanwhile: Callable[[], None] | None, *, quiet: bool = False) -> None:
        request, now_ms = self._request(quiet=quiet)
        killed = None if quiet or self._is_nested or self.chance.random() < 0.7 else self.chance.choice(_KILLED)
        text = f"run {request.length.value} {request.zone} {_span(request)} now +{(now_ms - START_MS) / HOUR_MS:g}h"
        self.lines.append(f"{text}{f' killed at {killed}' if killed else ''}{' meanwhile' if meanwhile else ''}")
        self._runs += 1
        before, runs, is_done = self._steps, self._runs, False
        try:
            self._work(request, now_ms, killed, meanwhile)
        except Killed:
            self.counts["killed"] += 1
        except SegmentLogError as error:
            self.counts[type(error).__name__] += 1
            self.lines.append(f"{type(error).__name__}: {str(error)[:160]}")
            if not self._is_allowed(error, undisturbed=(self._steps, self._runs) == (before, runs)):
                raise
        else:
            self.counts["runs"] += 1
            is_done = self._steps == before
        self.check(request, now_ms if is_done else request.start_ms)

    def _request(self, *, quiet: bool) -> tuple[Request, int]:
        length, zone = Length.DAY, self.zone
        if self.is_mixed and not quiet:
            length, zone = self.chance.choice([(Length.DAY, each) for each in _ZONES] + [(Length.HOUR, UTC)])
        found = list(windows(START_MS, _END_MS, length, zone))
        count = len(found) if quiet else self.chance.randint(1, min(len(found), 4))
        first = 0 if quiet else self.chance.randrange(len(found) - count + 1)
        asked = found[first : first + count]
        early_ms = asked[-1].end_ms - self.chance.choice([7, 13, 19]) * HOUR_MS  # the last window grows
        now_ms = _END_MS + 48 * HOUR_MS if quiet or self.chance.random() < 0.7 else early_ms
        source = StoreSource.of("/data/store")
        request = Request(
            source=source,
            topics=("orders",),
            start_ms=asked[0].start_ms,
            end_ms=asked[-1].end_ms,
            length=length,
            zone=zone,
            columns=tuple(COLUMNS.names),
        )
        there = self._messages() if self._runs else ()  # the store has them, too
        known_ms = max((_time_of(offset) + 1 for _, offset in there), default=0)
        return request, max(now_ms, asked[0].start_ms + HOUR_MS, known_ms)

    def _work(self, request: Request, now_ms: int, killed: str | None, meanwhile: Callable[[], None] | None) -> None:
        target = self.lake.target(job=Job(request), by=None if self._known else self.by)
        place = self.chance.choice(["frame", "commit"])
        pending = [] if meanwhile is None else [meanwhile]

        def act(at: str) -> None:
            if at == place and pending:
                pending.pop()()

        with self._deadly(target, killed, lambda: act("commit")):
            target.open()
            is_open = request.end_ms > now_ms
            plan = _Planner(request, now_ms).missing(target.parts(request.start_ms, request.end_ms), is_open=is_open)
            for part in plan.parts:
                rows = _rows(part)
                self._parts.append((part.window, set(_places(rows))))
                target.write(part, _Frame(rows, lambda: act("frame")) if rows.num_rows else None)
            target.close()

    @contextlib.contextmanager
    def _deadly(self, target: Any, killed: str | None, act: Callable[[], None]) -> Iterator[None]:
        """Kill the work at a step; do something before a commit."""
        left = [self.chance.randint(0, 2)]
        dead: list[bool] = []
        commit, write, finish = target.commit, target_module.write_files, Attempt.finish

        def at(step: str) -> None:
            if step == killed and not dead:
                left[0] -= 1
                if left[0] < 0:
                    dead.append(True)
                    raise Killed

        def do_commit(*arguments: Any) -> Any:
            act()
            at("commit")
            result = commit(*arguments)
            at("committed")
            return result

        def do_finish(attempt: Attempt, files: Any) -> None:
            at("finish")
            if not dead:
                finish(attempt, files)

        def do_write(*arguments: Any) -> Any:
            result = write(*arguments)
            at("write_files")
            return result

        target.commit = do_commit
        target_module.write_files = do_write
        Attempt.finish = do_finish  # type: ignore[method-assign]
        try:
            yield
        finally:
            target_module.write_files = write
            Attempt.finish = finish  # type: ignore[method-assign]

    def _is_allowed(self, error: SegmentLogError, *, undisturbed: bool) -> bool:
        text = str(error)
        if isinstance(error, TargetUnclearError) and is_torn(error, self._parts, self._messages()):
            self.counts["torn"] += 1
            return True
        if not self.is_clear or self._has_rule:
            return True
        if "rules for writers" in text:  # a table that was restored may have a constraint again
            return "delta.constraints" in str(self.load().metadata().configuration)
        if self.is_mixed and ("overlaps" in text or self._is_compacted):
            return True
        return not undisturbed and type(error).__name__ == "TargetChangedError"

    def _quiet(self) -> None:
        self._run(None, quiet=True)

    # Checks

    def _messages(self) -> Counter[tuple[int, int]]:
        table = self.load()
        names = list(COLUMNS.names)
        found = table.to_pyarrow_table() if self.kind == "delta" else table.scan().to_arrow()
        # A column may have been renamed; the body has the offset, too.
        rows = found.select([each for each in names if each in found.column_names]).to_pylist()
        return Counter(
            (row["queueId"], int(row["body"]))
            for row in rows
            if row.get("topic") == "orders" and row["body"] is not None
        )

    def check(self, request: Request | None = None, end_ms: int = 0) -> None:
        """Check that no message is there twice, and that those of a request are there up to some time."""
        there = self._messages()
        if doubled := [each for each, count in there.items() if count > 1]:
            raise HistoryError(f"{len(doubled)} messages are there twice: {sorted(doubled)[:4]}")
        if request is None:
            return
        period = range(request.start_ms, min(request.end_ms, end_ms))
        offsets = [each for each in range(_OF_A_QUEUE) if _time_of(each) in period]
        if lost := [(queue, offset) for queue in _QUEUES for offset in offsets if not there[queue, offset]]:
            raise HistoryError(f"{len(lost)} messages are missing: {lost[:4]}")

    # Events

    def _event(self) -> None:
        chosen = self.chance.random()
        if chosen < 0.35:
            self._run(None)
        elif chosen < 0.6:
            self._run(self._nested(self.chance.choice([lambda: self._run(None), self._maintain])))
        else:
            self._maintain()

    def _nested(self, act: Callable[[], None]) -> Callable[[], None]:
        def work() -> None:
            self._is_nested = True
            try:
                act()
            finally:
                self._is_nested = False

        return work

    def _maintain(self) -> None:
        events = _ICEBERG if self.kind == "iceberg" else _DELTA
        if self.chance.random() < _DOUBTS:
            events = (*_DOUBTFUL, _rename_and_add if self.kind == "iceberg" else _feature)
        event = self.chance.choice(events)
        self._steps += 1
        table = self.load()
        self._known.append(_place(self.kind, table))
        self.lines.append(event.__name__.strip("_"))
        # What the library refuses, such as a rollback to an expired snapshot, is no event.
        try:
            event(self, table)
            self.counts[event.__name__.strip("_")] += 1
        except (SegmentLogError, HistoryError):
            raise
        except Exception as error:  # noqa: BLE001 - each library has its own errors
            self.lines[-1] += f" refused: {type(error).__name__}"
            self.counts[f"refused {event.__name__.strip('_')}"] += 1


def _place(kind: str, table: Any) -> Any:
    current = None if kind == "delta" else table.current_snapshot()
    return table.version() if kind == "delta" else current and current.snapshot_id


# Iceberg


def _snapshots(table: Any) -> list[int]:
    return [each.snapshot_id for each in sorted(table.snapshots(), key=lambda each: each.sequence_number)]


def _tag(history: History, table: Any) -> None:
    found = history.chance.choice(_snapshots(table))
    table.manage_snapshots().create_tag(found, f"t{len(history.lines)}").commit()


def _branch(history: History, table: Any) -> None:
    found = history.chance.choice(_snapshots(table))
    table.manage_snapshots().create_branch(found, f"b{len(history.lines)}").commit()


def _expire(table: Any, chosen: list[int]) -> None:
    kept = {each.snapshot_id for each in table.refs().values()}
    table.maintenance.expire_snapshots().by_ids([each for each in chosen if each not in kept]).commit()


def _expire_prefix(history: History, table: Any) -> None:
    found = _snapshots(table)
    _expire(table, found[: history.chance.randint(1, len(found))])


def _expire_middle(history: History, table: Any) -> None:
    found = _snapshots(table)
    first = history.chance.randint(0, len(found) - 1)
    _expire(table, found[first : history.chance.randint(first, len(found))])


def _expire_one(history: History, table: Any) -> None:
    _expire(table, [history.chance.choice(_snapshots(table))])


def _expire_rolled_back(history: History, table: Any) -> None:
    known = {each.snapshot_id: each.parent_snapshot_id for each in table.snapshots()}
    current = table.current_snapshot().snapshot_id
    lineage = set()
    while current in known:
        lineage.add(current)
        current = known[current]
    _expire(table, [each for each in known if each not in lineage])


def _roll_back(history: History, table: Any) -> None:
    found = history.chance.choice(_snapshots(table))
    table.manage_snapshots().rollback_to_snapshot(found).commit()


def _forward(history: History, table: Any) -> None:
    found = history.chance.choice([each for each in history._known if each is not None])
    table.manage_snapshots().set_current_snapshot(found).commit()


def _compact_iceberg(history: History, table: Any) -> None:
    history._is_compacted = True
    whole = {"day", "hour"}.intersection(history.by) and "queue" not in history.by
    condition = "true" if whole else history.chance.choice(["true", "queueId = 0", "queueId = 1"])
    rows = (table.scan() if condition == "true" else table.scan(row_filter=condition)).to_arrow()
    with table.transaction() as transaction:
        transaction.delete(AlwaysTrue() if condition == "true" else condition)
        transaction.add_files(files_in(history, table, rows))


def files_in(history: History, table: Any, rows: pa.Table) -> list[str]:
    """Write rows into a file for each partition; pyiceberg's own writes need another package for days and hours."""
    parts: dict[object, list[int]] = {}
    for number, row in enumerate(rows.to_pylist()):
        time, topic, queue = row["storeTimestamp"], row["topic"], row["queueId"]
        values = {
            "day": time and time.date(),
            "hour": time and (time.date(), time.hour),
            "topic": topic,
            "queue": queue,
        }
        parts.setdefault(tuple(values[each] for each in history.by), []).append(number)
    folder = history.lake.table / "data" / "rewritten"
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for chosen in parts.values():
        paths.append(f"{folder}/{uuid.uuid4().hex}.parquet")
        pq.write_table(rows.take(chosen), paths[-1])
    return [f"file://{each}" for each in paths]


def _add_column(history: History, table: Any) -> None:
    from pyiceberg.types import StringType  # noqa: PLC0415 - a history of one kind needs one library

    with table.update_schema() as update:
        update.add_column(f"c{len(history.lines)}", StringType())


def _rename_and_add(history: History, table: Any) -> None:
    from pyiceberg.types import LongType  # noqa: PLC0415 - as above

    history.is_clear = False
    with table.update_schema() as update:
        update.rename_column("queueOffset", f"c{len(history.lines)}")
    with table.update_schema() as update:
        update.add_column("queueOffset", LongType())


def _rename_and_back(history: History, table: Any) -> None:
    with table.update_schema() as update:
        update.rename_column("queueOffset", "moved")
    was, history._has_rule = history._has_rule, True
    history._run(None)
    history._has_rule = was
    with history.load().update_schema() as update:
        update.rename_column("moved", "queueOffset")


def _hash_partition(history: History, table: Any) -> None:
    from pyiceberg.transforms import BucketTransform  # noqa: PLC0415 - as above

    with table.update_spec() as update:
        update.add_field("topic", BucketTransform(4), "bucket")
    was, history._has_rule = history._has_rule, True
    history._run(None)
    history._has_rule = was
    with history.load().update_spec() as update:
        update.remove_field("bucket")


def _append_foreign(history: History, table: Any) -> None:
    rows = _table([0, 1], [3, 5], "others")
    if history.kind == "delta":
        _append_delta(table, rows)
    else:
        table.add_files(files_in(history, table, rows))


def _append_nulls(history: History, table: Any) -> None:
    history.is_clear = False
    rows = pa.Table.from_pylist([{"body": b"theirs"}], COLUMNS)
    if history.kind == "delta":
        _append_delta(table, rows)
    else:
        table.add_files(files_in(history, table, rows))


def _delete_window(history: History, table: Any) -> None:
    # All rows of a window of the job, which is then missing as a whole, unless other windows were used.
    found = history.chance.choice(list(windows(START_MS, _END_MS, Length.DAY, history.zone)))
    if history.is_mixed:
        history.is_clear = False
    table.delete(_within(history.kind, found))


def _delete_rows(history: History, table: Any) -> None:
    history.is_clear = False
    table.delete(f"queueOffset = {history.chance.randrange(_OF_A_QUEUE)}")


def _delete_queue(history: History, table: Any) -> None:
    history.is_clear = False
    table.delete(f"queueId = {history.chance.choice(_QUEUES)}")


def _within(kind: str, window: Window) -> str:
    first, end = (datetime.fromtimestamp(each / 1000, UTC).isoformat() for each in window)
    if kind == "delta":
        first, end = f"{first[:19]}Z", f"{end[:19]}Z"
    return f"storeTimestamp >= '{first}' and storeTimestamp < '{end}'"


# Delta


def _append_delta(table: Any, rows: pa.Table) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415 - as above

    times = rows["storeTimestamp"]
    added = {"day": times.cast(pa.date32()), "hour": pa.compute.hour(times).cast(pa.int32())}
    for name in (each.name for each in table.schema().fields):
        if name in added:
            rows = rows.append_column(name, added[name])
    write_deltalake(table, rows, mode="append", schema_mode="merge")


def _restore(history: History, table: Any) -> None:
    table.restore(history.chance.randint(0, table.version()))


def _restore_known(history: History, table: Any) -> None:
    table.restore(history.chance.choice(history._known))


def _compact_delta(history: History, table: Any) -> None:
    history._is_compacted = True
    if history.chance.random() < 0.5:
        table.optimize.compact()
    else:
        table.optimize.z_order(["queueOffset"])


def _overwrite_delta(history: History, table: Any) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415 - as above

    history._is_compacted = True
    write_deltalake(table, table.to_pyarrow_table(), mode="overwrite")


def _forget(history: History, table: Any) -> None:
    table.create_checkpoint()
    log = history.lake.table / "_delta_log"
    first = history.chance.randint(0, table.version())
    for each in log.glob("*.json"):
        if int(each.stem) < first:
            each.unlink()


def _vacuum(history: History, table: Any) -> None:
    # Attempts of a run that writes meanwhile are not named by the table so far: as with VACUUM RETAIN 0 HOURS.
    if not history._is_nested:
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)


def _add_column_delta(history: History, table: Any) -> None:
    from deltalake import Field  # noqa: PLC0415 - as above

    table.alter.add_columns([Field(f"c{len(history.lines)}", "string")])


def _constraint(history: History, table: Any) -> None:
    name = f"k{len(history.lines)}"
    table.alter.add_constraint({name: "queueOffset < 1000"})
    was, history._has_rule = history._has_rule, True
    before = history._messages()
    history._run(None)
    if history._messages() != before:
        raise HistoryError("rows were added in spite of a constraint")
    history._has_rule = was
    history.load().alter.drop_constraint(name)


def _feature(history: History, table: Any) -> None:
    """Add a feature that needs more of writers, or an invariant; the table stays so."""
    history._has_rule = True
    log = history.lake.table / "_delta_log"
    schema = json.loads(table.schema().to_json())
    metadata = table.metadata()
    protocol: dict[str, Any] = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["rowTracking", "domainMetadata"],
    }
    if history.chance.random() < 0.5:
        rule = json.dumps({"expression": {"expression": "queueOffset < 1000"}})
        next(each for each in schema["fields"] if each["name"] == "queueOffset")["metadata"] = {
            "delta.invariants": rule
        }
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["invariants", "checkConstraints"]}
    action = {
        "id": metadata.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": metadata.partition_columns,
        "configuration": metadata.configuration,
        "createdTime": metadata.created_time,
    }
    text = json.dumps({"protocol": protocol}) + "\n" + json.dumps({"metaData": action}) + "\n"
    with (log / f"{table.version() + 1:020d}.json").open("x") as file:
        file.write(text)


_Event = Callable[[History, Any], None]
_ICEBERG: Final[tuple[_Event, ...]] = (
    *(_tag, _branch, _expire_prefix, _expire_middle, _expire_one, _expire_rolled_back, _roll_back, _roll_back),
    *(_forward, _forward, _compact_iceberg, _compact_iceberg, _add_column, _append_foreign, _delete_window),
    *(_rename_and_back, _hash_partition),
)
_DELTA: Final[tuple[_Event, ...]] = (
    *(_restore, _restore, _restore_known, _compact_delta, _overwrite_delta, _forget, _vacuum, _add_column_delta),
    *(_append_foreign, _delete_window, _constraint),
)
_DOUBTFUL: Final[tuple[_Event, ...]] = (_append_nulls, _delete_rows, _delete_queue)
"""Events after which an error is right."""
