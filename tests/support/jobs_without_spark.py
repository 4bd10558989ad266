"""Jobs in a process without a JVM: it reads the messages of a part, and writes files or batches as Spark's tasks do.

::

    job ── frame_of ──► Rows: store, offsets, window ──► Parquet files ── Files ──► parts
    replay ── _frame ──► ranges of queues ──► staged records ── commit_batch ──► parts

Planning, targets, records and state files are those of the jobs. A process begins in a fraction of a second, so that
many can be killed. Late messages are found by Arrow, in place of a query of Spark.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import segmentlog
from segmentlog.jobs import replay
from segmentlog.jobs.backfill import DEAD_LETTER_COLUMNS, Bodies, Files, Layout, Length, Part, Request, Window, job
from segmentlog.jobs.backfill.planning import Planner
from segmentlog.query.bodies import body_format
from segmentlog.query.parts import Offsets, ends_of, held
from segmentlog.query.source import StoreSource
from segmentlog.store import BatchId, Outgoing, QueueKey, QueueRange
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.sink import Staging, commit_batch

from .backfills import COLUMNS, HOUR_MS, TOPICS
from .batches import batch_of
from .replays import replayed
from .written_stores import SMALL

FOLLOW_S = 0.02


class Rows(NamedTuple):
    """Stands for a DataFrame: messages of a part, those that parse or the others."""

    store: str
    offsets: Offsets
    window: Window
    is_dead: bool | None = None

    def read(self) -> pa.Table:
        topics = sorted({key.topic for key in self.offsets})
        with segmentlog.open(self.store) as opened:
            rows = opened.scan(topics, columns=(*DEAD_LETTER_COLUMNS, "tags")).to_arrow()
        times = pc.cast(pc.cast(rows["storeTimestamp"], pa.timestamp("ms")), "int64").to_pylist()
        places = zip(*(rows[name].to_pylist() for name in ("topic", "queueId", "queueOffset")), times, strict=True)
        rows = rows.filter(pa.array([self._has(*each) for each in places], pa.bool_()))
        if self.is_dead is None:
            return rows.select(COLUMNS)
        parses = pc.equal(pc.binary_slice(rows["body"], 0, 1), b"{")
        if self.is_dead:
            return rows.filter(pc.invert(parses)).select(DEAD_LETTER_COLUMNS)
        rows = rows.filter(parses)
        ids = [json.loads(body)["id"] for body in rows["body"].to_pylist()]
        return rows.drop_columns(["body"]).append_column("id", pa.array(ids, pa.string()))

    def _has(self, topic: str, queue_id: int, offset: int, ms: int) -> bool:
        first, end = self.offsets.get(QueueKey(topic, queue_id), (0, 0))
        return first <= offset < end and self.window.start_ms <= ms < self.window.end_ms


class ParquetFiles(Files):
    def _write_files(self, frame: Any, written: str, ready: str) -> int:
        tasks, rows = Path(written, "_temporary", "0"), cast("Rows", frame).read()
        tasks.mkdir(parents=True)
        for number, topic in enumerate(TOPICS):
            pq.write_table(rows.filter(pc.equal(rows["topic"], topic)), tasks / f"part-{number}.parquet")
        for each in tasks.iterdir():
            each.rename(Path(ready, each.name))
        return int(rows.num_rows)


class ParsedBodies(Bodies):
    def frame_of(self, spark: Any, request: Request, part: Part) -> Any:
        found = _rows(request, part.offsets, part.window)
        if found is None:
            return None, None
        rejected = found._replace(is_dead=True).read().num_rows
        return found._replace(is_dead=False), SimpleNamespace(get={"rejected": rejected})

    def bury(self, spark: Any, request: Request, part: Part) -> None:
        found = _rows(request, part.offsets, part.window)
        self.dead_letters.write(part, cast("Any", found and found._replace(is_dead=True)))


def _rows(request: Request, offsets: Offsets, window: Window) -> Rows | None:
    is_empty = all(first == end for first, end in offsets.values())
    return None if is_empty else Rows(request.source.path, offsets, window)


def backfill(store: str, target: str, start_ms: int, hours: int, mode: str = "files") -> None:
    """Run the job by the hour; a job that follows ends when there is a file ``TARGET.stop``."""
    topics = TOPICS if mode != "follow" else TOPICS[:1]
    request = Request(
        source=StoreSource.of(store),
        topics=topics,
        start_ms=start_ms,
        end_ms=start_ms + hours * HOUR_MS,
        length=Length.HOUR,
        columns=COLUMNS,
        options={"corruptRecord": "fail"},  # as the verb asks
    )
    job.frame_of = lambda _, asked, offsets, *given: _rows(asked, offsets, given[-1])  # type: ignore[attr-defined]
    Planner.late = _late  # type: ignore[method-assign, assignment]
    bodies = None
    if mode == "dead letters":
        dead = ParquetFiles(f"{target}-dead-letters", request, Layout())
        bodies = ParsedBodies(format=body_format("json", "id string"), dead_letters=dead)
    stop, every_s = threading.Event(), FOLLOW_S if mode == "follow" else None
    threading.Thread(target=_stop_by_file, args=(Path(f"{target}.stop"), stop), daemon=True).start()
    files = ParquetFiles(target, request, Layout())
    job.run(None, request, files, bodies=bodies, catches_up=mode == "catch-up", every_s=every_s, stop=stop)  # type: ignore[arg-type]


def _stop_by_file(path: Path, stop: threading.Event) -> None:
    while not path.exists():
        time.sleep(0.05)
    stop.set()


def _late(self: Planner, _: object, parts: Sequence[Part], *, is_open: bool = False) -> list[Part]:
    found = []
    for window, there in held(parts).items():
        ends = ends_of(there)
        spans = {each.key: (ends.get(each.key, each.min_offset), each.max_offset) for each in self._queues}
        rows = Rows(self._request.source.path, spans, window).read()
        late: dict[QueueKey, list[int]] = {}
        for topic, queue_id, offset in zip(*(rows[name].to_pylist() for name in COLUMNS[:3]), strict=True):
            late.setdefault(QueueKey(topic, queue_id), []).append(offset)
        if late:
            offsets = {key: (min(each), max(each) + 1) for key, each in late.items()}
            found.append(Part(window=window, number=len(there), offsets=offsets, planned_ms=self._seen_ms))
    return found


def replay_without_spark(path: str, target: str, state: str, part_bytes: int) -> None:
    """Run the job; this process stages and commits the batches."""

    def append(part: Sequence[QueueRange], to: str, app: str, number: int, _: object) -> None:
        columns = ["topic", "queueId", "queueOffset", "body", "properties", "bornTimestamp", "flag", "reconsumeTimes"]
        staged = []
        os.makedirs(to, exist_ok=True)
        for task, wanted in enumerate(part):
            with segmentlog.open(path) as opened:
                rows = opened.scan(wanted.key.topic, columns=columns).to_arrow().to_pylist()
            with Staging.open(to, f"{app}-{number}", task, uuid.uuid4().hex, SMALL) as staging:
                mine = [row for row in rows if row["queueId"] == wanted.key.queue_id]
                chosen = [row for row in mine if wanted.start <= row["queueOffset"] < wanted.stop]
                staging.add(batch_of([_outgoing(row) for row in chosen]))
                staged.append(staging.finish())
        commit_batch(to, SMALL, BatchId(app, number), staged)

    replay._frame = lambda _spark, _source, part, _settings: part  # type: ignore[assignment, return-value]
    replay._append = append  # type: ignore[assignment]
    replayed(None, Path(path), target=target, state=state, part_bytes=part_bytes)


def killed_replay(*arguments: Any, parts: int) -> None:
    """Run `replay_without_spark`, and end as a kill before the last batch becomes visible."""
    ended = BatchMark.ended
    BatchMark.ended = lambda mark, stop: os._exit(9) if mark.sequence == parts else ended(mark, stop)  # type: ignore[method-assign]
    replay_without_spark(*arguments)


def _outgoing(row: dict[str, Any]) -> Outgoing:
    properties = dict(row["properties"])
    named = {
        name: properties.pop(key, None) for name, key in (("tags", "TAGS"), ("keys", "KEYS"), ("uniq_key", "UNIQ_KEY"))
    }
    return Outgoing(
        topic=row["topic"],
        queue_id=row["queueId"],
        body=row["body"],
        properties={name: value for name, value in properties.items() if name != "__CRC32#"},
        born_timestamp=round(row["bornTimestamp"].timestamp() * 1000),
        flag=row["flag"],
        reconsume_times=row["reconsumeTimes"],
        **named,
    )
