"""Random histories of a store and the table that a backfill makes of it, read as one.

::

    store     append ── append ── append ── append …              new messages beside everything else
    table         run ── kill ── run ── compaction, expiry, rollback ── run
    check     rows of the table, and a scan from where it ends: each message of the store once
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

import segmentlog
from segmentlog.jobs.backfill import Files, Layout, Length, Part, Request, Window
from segmentlog.jobs.backfill.planning import Planner
from segmentlog.jobs.lake import target as target_module
from segmentlog.jobs.lake.target import Attempt, Job
from segmentlog.query.ledgers import TargetUnclearError
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError, MessageStore, Outgoing, Services, StoreConfig

from .lake import COLUMNS, HOUR_MS, START_MS, Frame, Lake
from .lake_histories import (
    Place,
    _append_foreign,
    _compact_delta,
    _compact_iceberg,
    _expire_middle,
    _expire_prefix,
    _forget,
    _forward,
    _overwrite_delta,
    _place,
    _places,
    _restore,
    _roll_back,
    _vacuum,
    is_torn,
)

KINDS: Final = ("delta", "iceberg", "files")
CONFIG: Final = StoreConfig(segment_bytes=1 << 16, index=False, services=Services.ON_CALL)
_EVENTS: Final = 12
_MAINTENANCE: Final[dict[str, tuple[Callable[[Any, Any], None], ...]]] = {
    "delta": (_compact_delta, _overwrite_delta, _restore, _vacuum, _forget, _append_foreign),
    "iceberg": (_compact_iceberg, _expire_prefix, _expire_middle, _roll_back, _forward, _append_foreign),
}
_STEPS: Final = ("write", "commit", "committed", "finish")


class Killed(BaseException):
    """Stands for a kill: no handler of the job does anything more."""


class OneTask(Files):
    """Files whose rows one task writes in this process."""

    def _write_files(self, frame: Any, written: str, ready: str) -> int:
        rows = cast("pa.Table", frame.toArrow())
        pq.write_table(rows, f"{ready}/part-0.parquet")
        return rows.num_rows


@contextmanager
def configured(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let pyiceberg's configuration have the catalog ``test``; it is read when pyiceberg is imported."""
    with monkeypatch.context() as patch:
        for name, value in lake.catalog.items():
            patch.setenv(f"PYICEBERG_CATALOG__TEST__{name.upper()}", value)
        patch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
        yield


class TableHistory:
    """One history, from a seed."""

    def __init__(self, kind: str, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.kind, self.seed = kind, seed
        self.lake = Lake(kind, directory / "lake")
        self.by = self.chance.choice([("day",), ("hour",), ("hour", "queue"), ("topic",)])
        self.path = directory / "store"
        self.files = directory / "files"
        self.now_ms = START_MS + 60_000
        self.sent: list[int] = [0, 0, 0]
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self._is_compacted = self._is_nested = False
        self._known: list[Any] = []
        self._parts: list[tuple[Window, set[Place]]] = []

    @property
    def name(self) -> str:
        """The table, as a position names it."""
        place = {"delta": self.lake.table, "iceberg": "test:lake.messages", "files": self.files}[self.kind]
        return f"table:{self.kind}:{place}"

    def play(self) -> Counter[str]:
        with MessageStore.open(self.path, CONFIG, clock=lambda: self.now_ms) as store:
            self.append(store)
            self.run(kill=False)
            self.check(store)
            for _ in range(_EVENTS):
                chosen = self.chance.random()
                if chosen < 0.4:
                    self.append(store)
                elif chosen < 0.75 or self.kind == "files":
                    self.run(kill=self.chance.random() < 0.4)
                else:
                    self._maintain()
                self.check(store)
        return self.counts

    def append(self, store: MessageStore) -> None:
        self.lines.append("append")
        for _ in range(self.chance.randint(1, 12)):
            self.now_ms += self.chance.choice([0, 1, 60_000, 25 * 60_000])
            queue = self.chance.randrange(3 if len(self.lines) > 6 else 2)  # the third queue is created later
            store.append(Outgoing(topic="orders", queue_id=queue, body=b"%d" % self.sent[queue]))
            self.sent[queue] += 1
        store.append(Outgoing(topic="others", body=b"x"))

    def _request(self) -> Request:
        return Request(
            source=StoreSource.of(str(self.path)),
            topics=("orders",),
            start_ms=START_MS,
            end_ms=self.now_ms,
            length=Length.HOUR,
            columns=tuple(COLUMNS.names),
        )

    def _target(self) -> Any:
        if self.kind == "files":
            return OneTask(str(self.files), self._request(), Layout())
        return self.lake.target(job=Job(self._request()), by=self.by)

    def run(self, *, kill: bool) -> None:
        """Write what the table lacks, as a job that follows does."""
        step = self.chance.choice(_STEPS) if kill else None
        self.lines.append(f"run killed at {step}" if step else "run")
        left = [self.chance.randint(0, 2)]
        target = self._target()

        def at(name: str) -> None:
            if name == step:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed

        write, finish = target_module.write_files, Attempt.finish
        commit = getattr(target, "commit", None)

        def do_commit(*given: Any) -> Any:
            at("commit")
            result = commit(*given) if commit else None
            at("committed")
            return result

        target.commit = do_commit
        target_module.write_files = lambda *given: (write(*given), at("write"))[0]
        Attempt.finish = lambda attempt, files: (at("finish"), finish(attempt, files))[1]  # type: ignore[method-assign]
        try:
            target.open()
            self.now_ms += self.chance.choice([0, 0, HOUR_MS])
            plan = Planner(self._request(), self.now_ms).missing(target.parts(START_MS), is_open=True)
            for part in plan.parts:
                at("write")
                rows = self._rows(part)
                self._parts.append((part.window, set(_places(rows))))
                target.write(part, Frame(rows) if rows.num_rows else None)
            self.counts["runs"] += 1
        except Killed:
            self.counts["killed"] += 1
        except TargetUnclearError as error:
            self._check_torn(error, self.table())
        finally:
            target_module.write_files, Attempt.finish = write, finish  # type: ignore[method-assign]
            target.close()

    def _check_torn(self, error: TargetUnclearError, held: pa.Table) -> None:
        """Raise an error again unless it is right."""
        if not is_torn(error, self._parts, set(_places(held))):
            raise AssertionError(f"{self}: {error}") from error
        self.counts["torn"] += 1

    def _rows(self, part: Part) -> pa.Table:
        with segmentlog.open(self.path) as opened:
            rows = opened.scan("orders", columns=COLUMNS.names).to_arrow().cast(COLUMNS)
        times = rows["storeTimestamp"].cast(pa.int64())
        start, stop = (each * 1000 for each in part.window)
        rows = rows.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, stop)))
        places = zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True)
        spans = {key.queue_id: span for key, span in part.offsets.items()}
        kept = [spans.get(queue, (0, 0))[0] <= offset < spans.get(queue, (0, 0))[1] for queue, offset in places]
        return rows.filter(pa.array(kept, pa.bool_()))

    def _maintain(self) -> None:
        event = self.chance.choice(_MAINTENANCE[self.kind])
        self.lines.append(event.__name__.strip("_"))
        table = self.lake.load()
        self._known.append(_place(self.kind, table))
        try:
            event(self, table)
            self.counts[event.__name__.strip("_")] += 1
        except Exception as error:  # noqa: BLE001 - what the library refuses, such as the expiry of all, is no event
            self.lines[-1] += f" refused: {type(error).__name__}"

    def table(self) -> pa.Table:
        """Return the messages that the table holds."""
        if self.kind == "files":
            return ds.dataset(self.files, partitioning="hive").to_table(columns=COLUMNS.names)
        loaded = self.lake.load()
        found = loaded.to_pyarrow_table() if self.kind == "delta" else loaded.scan().to_arrow()
        return found.filter(pc.equal(found["topic"], "orders")).select(COLUMNS.names)

    def check(self, store: MessageStore) -> None:
        """Read table and store as one, with new messages in between: each message is there once."""
        held = self.table()
        self.append(store)
        try:
            with segmentlog.open(self.path) as opened:
                live = opened.scan("orders", start=self.name, columns=COLUMNS.names).to_arrow()
        except TargetUnclearError as error:
            self._check_torn(error, held)
            return
        except ConfigError as error:
            if held.num_rows or "holds no window" not in str(error):
                raise AssertionError(f"{self}: {error}") from error
            self.counts["empty tables"] += 1
            return
        self.counts["messages of the table"] += held.num_rows
        self.counts["messages of the store"] += live.num_rows
        there = Counter(place for rows in (held, live) for place in _places(rows))
        expected = Counter((queue, offset) for queue, count in enumerate(self.sent) for offset in range(count))
        if there != expected:
            wrong = sorted((there - expected).items())[:4], sorted((expected - there).items())[:4]
            raise AssertionError(f"{self}: twice and missing are {wrong}")

    def __str__(self) -> str:
        return f"{self.kind}, seed {self.seed}: {' | '.join(self.lines)}"
