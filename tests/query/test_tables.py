import os
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import segmentlog
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.read import plan_partitions
from segmentlog.jobs.backfill import Layout, Length
from segmentlog.query.parts import Part, Window
from segmentlog.query.position import OfTable, Resolver, Rules, Words
from segmentlog.query.table_names import TableName, parse_table_name
from segmentlog.query.tables import table_end
from segmentlog.store import ConfigError, MessageStore, Outgoing, QueueBounds, QueueKey, ScanSpec, StoreLocation
from support.commands import run_command
from support.lake import HOUR_MS, START_MS, Frame, request
from support.scale import Report, scale
from support.table_histories import CONFIG, KINDS, OneTask, TableHistory, configured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = QueueKey("orders", 0), QueueKey("orders", 1)
SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261128"))


def part(hour: int, number: int = 0, *, finishes: bool = True, **spans: tuple[int, int]) -> Part:
    start = START_MS + hour * HOUR_MS
    window = Window(start, start + HOUR_MS)
    offsets = {QueueKey("orders", int(name[1:])): span for name, span in spans.items()}
    return Part(window=window, number=number, offsets=offsets, planned_ms=window.end_ms - (not finishes))


def written(directory: Path, *parts: Part, store: Path | str = "/data/store") -> str:
    """Write a directory of files as a backfill of a store does; return its name."""

    target = OneTask(str(directory), replace(request(store=store), length=Length.HOUR), Layout())
    target.open()
    for each in parts:
        target.write(each, Frame(pa.table({"topic": ["orders"]})))  # type: ignore[arg-type]
    target.close()
    return f"files:{directory}"


def end(name: str, store: str = "/data/store") -> Any:
    return table_end(parse_table_name(name), StoreLocation.of(store))


def test_names() -> None:
    assert parse_table_name("delta:/lake/orders") == TableName("delta", "/lake/orders")
    assert parse_table_name("Delta:s3://bucket/orders") == TableName("delta", "s3://bucket/orders")
    assert parse_table_name("iceberg:lake.orders") == TableName("iceberg", "lake.orders")
    assert parse_table_name("iceberg:prod:lake.orders") == TableName("iceberg", "lake.orders", "prod")
    assert str(parse_table_name("iceberg:prod:lake.orders")) == "table:iceberg:prod:lake.orders"
    for wrong in ("", "delta", "delta:", "hudi:/lake", "delta: /lake"):
        with pytest.raises(ValueError, match="table:delta:PATH"):
            parse_table_name(wrong)


def test_a_queue_ends_where_its_last_window_does(tmp_path: Path) -> None:
    parts = [part(0, q0=(0, 5), q1=(0, 0)), part(1, q0=(5, 7)), part(3, finishes=False, q0=(7, 9), q1=(0, 4))]
    found = end(written(tmp_path / "lake", *parts, part(3, 1, q0=(9, 12), q1=(4, 4))))
    assert (dict(found.offsets), found.topics, dict(found.gaps)) == ({A: 12, B: 4}, {"orders"}, {})


def test_offsets_that_no_part_has_are_a_gap(tmp_path: Path) -> None:
    found = end(written(tmp_path / "lake", part(0, q0=(2, 5), q1=(0, 1)), part(2, q0=(6, 7), q1=(1, 1))))
    assert (dict(found.offsets), dict(found.gaps)) == ({A: 7, B: 1}, {A: (5, 6)})


def test_late_messages_before_the_end_are_no_problem_and_those_after_it_are(tmp_path: Path) -> None:
    parts = [part(0, q0=(0, 5)), part(0, 1, q0=(6, 8)), part(1, q0=(5, 9))]
    assert end(written(tmp_path / "lake", *parts)).offsets == {A: 9}
    with pytest.raises(ConfigError, match=r"late messages .* up to offset 12 of orders/0.*Run its backfill"):
        end(written(tmp_path / "late", *parts, part(0, 2, q0=(11, 12))))
    with pytest.raises(ConfigError, match="late messages"):
        end(written(tmp_path / "last", *parts, part(1, 1, q0=(10, 11))))


def test_tables_that_are_not_of_the_store_are_refused(tmp_path: Path) -> None:
    name = written(tmp_path / "lake", part(0, q0=(0, 5)))
    with pytest.raises(ConfigError, match=r"no messages of the store /other.*`/data/store`; name the store"):
        end(name, "/other")
    with pytest.raises(ConfigError, match="holds no window"):
        end(written(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="no backfill has written into this directory"):
        end(f"files:{tmp_path}")
    (tmp_path / ".lake.backfill" / "request").write_text("[]")
    with pytest.raises(ConfigError, match="not the request of a backfill"):
        end(name)
    with pytest.raises(ConfigError, match=r"cannot be opened.*Name the directory of a Delta table"):
        end(f"delta:{tmp_path / 'none'}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Store with queues 0 and 1 of orders, of which a directory has offsets up to 5 and 3; queue 2 is newer."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for queue, count in enumerate((8, 4, 2)):
            for number in range(count):
                store.append(Outgoing(topic="orders", queue_id=queue, body=b"%d" % number))
        store.append(Outgoing(topic="payments", body=b"x"))
    written(tmp_path / "lake", part(0, q0=(0, 5), q1=(0, 3)), store=tmp_path / "store")
    return tmp_path / "store"


EXPECTED = {(0, 5), (0, 6), (0, 7), (1, 3), (2, 0), (2, 1)}


def test_every_door_continues_there(path: Path) -> None:
    name = f"table:files:{path.parent / 'lake'}"
    with segmentlog.open(path) as store:
        rows = store.scan("orders", start=name).to_arrow().to_pylist()
        assert {(row["queueId"], row["queueOffset"]) for row in rows} == EXPECTED
        assert store.scan("orders", end=name).count() == 8
    ran = run_command("cat", path, "orders", "--from", name, "--json")
    assert {(row["queueId"], row["queueOffset"]) for row in ran.rows} == EXPECTED
    given = {"path": str(path), "subscribe": "orders", "startingOffsets": name}
    planned = {
        (each.key.queue_id, offset)
        for partition in plan_partitions(parse_read_options(given), ScanSpec(columns=("body",)))
        for each in partition.task.ranges
        for offset in range(each.start, each.stop)
    }
    assert planned == EXPECTED


def test_wrong_names_and_topics_are_told(path: Path) -> None:
    name = f"table:files:{path.parent / 'lake'}"
    ran = run_command("cat", path, "payments", "--from", name)
    assert ran.code == 2
    assert "holds no messages of payments" in ran.err
    assert "Read `orders`, or run its backfill for payments" in ran.err
    ran = run_command("cat", path, "orders", "--from", "table:hudi:/lake")
    assert "`table:hudi:/lake` is not a position" in ran.err
    assert "table:delta:PATH" in ran.err
    with segmentlog.open(path) as store, pytest.raises(ConfigError, match=r"start.*table:iceberg:NAMESPACE.TABLE"):
        store.scan("orders", start="table:")


def test_messages_that_no_part_has_are_an_error(path: Path) -> None:
    directory = path.parent / "lake"
    written(directory, part(2, q0=(6, 7), q1=(3, 3)), store=path)
    with (
        segmentlog.open(path) as store,
        pytest.raises(
            ConfigError, match=r"lacks the messages 5 to 5 of orders/0, before offset 7, where it ends.*--catch-up"
        ),
    ):
        store.scan("orders", start=f"table:files:{directory}")


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("kind", KINDS)
def test_table_and_store_have_each_message_once_in_random_histories(
    kind: str, tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits, kills, expiry, rollback and compaction beside new messages."""
    counts: Counter[str] = Counter()
    for number in range(scale(1, 8, 700)):
        history = TableHistory(kind, SEED + number, tmp_path / str(number))
        with configured(history.lake, monkeypatch):
            counts += history.play()
    report("histories", dict(counts))
    assert min(counts["messages of the table"], counts["messages of the store"], counts["runs"]) > 0


def history_of(kind: str, directory: Path) -> tuple[TableHistory, set[tuple[int, int]]]:
    """Make a store, a table of some of it, and newer messages; return the messages of the store, too."""
    history = TableHistory(kind, SEED, directory)
    with MessageStore.open(history.path, CONFIG, clock=lambda: history.now_ms) as made:
        for _ in range(2):
            history.append(made)
            history.run(kill=False)
        history.append(made)
    return history, {(queue, offset) for queue, count in enumerate(history.sent) for offset in range(count)}


def test_table_and_store_are_one_in_duckdb_and_as_an_arrow_stream(tmp_path: Path) -> None:
    """The lines of the recipe; a commit after the scan was made doubles nothing."""
    history, sent = history_of("delta", tmp_path)
    columns = ["topic", "queueId", "queueOffset", "storeTimestamp", "body"]
    live = segmentlog.open(history.path).scan("orders", start=history.name, columns=columns)
    history.run(kill=False)
    lake = DeltaTable(history.lake.table).to_pyarrow_dataset()
    assert lake.count_rows() == len(sent)
    starts = pa.Table.from_pylist(
        [{"topic": each.key.topic, "queueId": each.key.queue_id, "start": each.start} for each in live.ranges]
    )
    held = duckdb.sql(
        "FROM lake t ANTI JOIN starts s ON (t.topic, t.queueId) = (s.topic, s.queueId) AND queueOffset >= start"
    ).to_arrow_table()
    assert 0 < starts.num_rows < held.num_rows < len(sent)
    rows = duckdb.sql("FROM held SELECT queueId, queueOffset UNION ALL FROM live SELECT queueId, queueOffset")
    assert sorted(rows.fetchall()) == sorted(sent)
    batches = chain(held.select(columns).to_batches(), live.to_batches())
    both = pa.RecordBatchReader.from_batches(live.schema, (each.cast(live.schema) for each in batches)).read_all()
    assert sorted(zip(both["queueId"].to_pylist(), both["queueOffset"].to_pylist(), strict=True)) == sorted(sent)


@pytest.mark.spark
def test_files_and_store_are_one_in_spark(spark: "SparkSession", tmp_path: Path) -> None:
    history, sent = history_of("files", tmp_path)
    live = spark.read.format("segmentlog").option("subscribe", "orders")
    live = live.option("columns", "topic,queueId,queueOffset,body").option("startingOffsets", history.name)
    live = live.load(str(history.path))
    both = spark.read.parquet(str(history.files)).select(live.columns).unionByName(live)
    assert sorted((row.queueId, row.queueOffset) for row in both.collect()) == sorted(sent)


class _Falling:
    """Store whose clock was set back: the message at offset 3 is of an hour that no window has, 4 is older again."""

    path, broker_name, times_fall = "/data/store", "store", True
    location = StoreLocation.of("/data/store")

    def offset_at(self, key: QueueKey, time_ms: int, boundary: object = None) -> int:
        return 3 if key == A else 1


def test_messages_that_a_clock_stored_before_the_end_are_an_error(tmp_path: Path) -> None:
    name = OfTable(parse_table_name(written(tmp_path / "lake", part(0, q0=(0, 5), q1=(0, 1)))))
    resolver = Resolver(_Falling(), Rules(), Words())  # type: ignore[arg-type]
    assert resolver.start(name, QueueBounds(B, 0, 9)) == 1
    with pytest.raises(ConfigError, match=r"lacks messages of orders/0 from offset 3 on, before offset 5"):
        resolver.start(name, QueueBounds(A, 0, 9))


def test_a_gap_of_messages_that_retention_deleted_is_none(tmp_path: Path) -> None:
    name = OfTable(parse_table_name(written(tmp_path / "lake", part(0, q0=(2, 5)), part(2, q0=(6, 7)))))
    store = SimpleNamespace(path="/data/store", broker_name="s", times_fall=False, location=_Falling.location)
    resolver = Resolver(store, Rules(), Words())  # type: ignore[arg-type]
    assert resolver.start(name, QueueBounds(A, 6, 9)) == 7
    with pytest.raises(ConfigError, match="lacks the messages 5 to 5"):
        resolver.start(name, QueueBounds(A, 5, 9))
