import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from segmentlog.jobs.backfill import Part, Window, Written
from segmentlog.jobs.lake import parquet_files
from segmentlog.jobs.lake.iceberg import IcebergTarget
from segmentlog.jobs.lake.parquet_files import DataFile, write_files
from segmentlog.jobs.lake.target import (
    Attempt,
    Attempts,
    Job,
    TargetChangedError,
)
from segmentlog.query.ledgers import TargetUnclearError
from segmentlog.query.parts import Row, month_of, pack, unpack
from segmentlog.store import ConfigError, QueueKey
from support.lake import (
    COLUMNS,
    KINDS,
    PARTS,
    Frame,
    Lake,
    Meanwhile,
    expected,
    nursery,
    part_of,
    request,
    rows_of,
    write_all,
)
from support.lake import (
    ROWS as ROWS_OF_A_PART,
)
from support.scale import scale

ROWS = [Row(part_of(number), Written(number, 2, 3), f"attempt{number}") for number in range(1_000)]


def test_rows_are_read_as_they_were_packed() -> None:
    assert unpack(pack(reversed(ROWS)), "here") == ROWS
    assert unpack(pack([]), "here") == []


def test_a_month_of_hours_is_small() -> None:
    month = [row for row in ROWS if month_of(row.part) == "2026-02"]
    assert len(month) == 28 * 24
    assert len(pack(month)) < 40 * len(month)


@pytest.mark.parametrize("text", ["", "x", "eA==", pack(ROWS)[:-8]])
def test_another_text_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match="property p of t is not a ledger of a backfill"):
        unpack(text, "property p of t")


@pytest.mark.parametrize("text", ["", "1", "[1, 2, 3]", '[{"window": [1]}, [1, 2, 3], "a"]'])
def test_another_row_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match="snapshot 5 is not a part of a backfill"):
        Row.from_json(text, "snapshot 5")


def file_of(attempt: Attempt, name: str) -> DataFile:
    path = Path(attempt.directory.removeprefix("file://")) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    return DataFile(name, 1, 1, (), "{}")


def none() -> set[str | None]:
    return set()


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(f"file://{tmp_path}", f"file://{tmp_path}/data", "job")


def place_of(attempt: Attempt) -> Path:
    return Path(attempt.directory.removeprefix("file://"))


def age(attempt: Attempt, hours: float = 25) -> None:
    """Let all of an attempt be some hours old."""
    old_s = time.time() - hours * 3600
    for each in (place_of(attempt), *place_of(attempt).rglob("*")):
        os.utime(each, (old_s, old_s))


def test_an_attempt_without_a_commit_goes_when_its_newest_file_is_older_than_a_day(attempts: Attempts) -> None:
    attempt = attempts.start()
    file_of(attempt, "queueId=1/a")
    age(attempt, hours=23)
    assert attempts.clean(none(), none) == 0
    age(attempt)
    file_of(attempt, "queueId=1/b")
    assert attempts.clean(none(), none) == 0
    age(attempt)
    assert attempts.clean(none(), none) == 1
    assert not place_of(attempt).exists()


@pytest.mark.parametrize(("table", "job"), [("other", "job"), ("", "other")])
def test_attempts_of_other_jobs_and_tables_with_the_same_data_are_left_alone(
    attempts: Attempts, tmp_path: Path, table: str, job: str
) -> None:
    age(attempts.start())
    assert Attempts(f"file://{tmp_path}{table}", f"file://{tmp_path}/data", job).clean(none(), none) == 0
    assert attempts.clean(none(), none) == 1


def test_a_location_of_an_unknown_file_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="location what://ever/data cannot be opened"):
        Attempts("what://ever", "what://ever/data", "job")


KILLS = scale(30, 30, 400)
RACES = scale(20, 20, 100)


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def check_whole(lake: Lake, parts: int = PARTS) -> None:
    assert lake.rows().equals(expected(parts))
    assert lake.files() == lake.paths()


def test_each_part_is_added_once(lake: Lake) -> None:
    for _ in range(2):
        target = lake.target()
        target.open()
        for number in range(PARTS):
            assert target.write(part_of(number), Frame(rows_of(number))).messages == len(rows_of(number))
        assert sorted(target.parts(), key=lambda each: each.window) == [part_of(number) for number in range(PARTS)]
        target.close()
    check_whole(lake)


def test_a_part_without_messages_is_held(lake: Lake) -> None:
    target = lake.target()
    target.open()
    assert target.write(part_of(0), None) == Written(0, 0, 0)
    assert target.write(part_of(1), Frame(rows_of(1).slice(0, 0))) == Written(0, 0, 0)
    assert sorted(each.window for each in target.parts()) == [part_of(0).window, part_of(1).window]
    target.close()
    assert lake.rows().num_rows == 0


def test_a_failed_task_leaves_no_file(lake: Lake) -> None:
    target = lake.target()
    target.open()
    wrong = rows_of(0).set_column(1, "queueId", pa.array(["x"] * len(rows_of(0))))
    with pytest.raises(pa.ArrowInvalid):
        target.write(part_of(0), Frame(wrong))
    assert target.parts() == []
    target.close()
    assert lake.files() == set()


@pytest.mark.scaled(quick=0)  # a quick run has one writer of each kind that is killed, and second writers, below
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_writers_leave_nothing_wrong(kind: str, tmp_path: Path) -> None:
    found = nursery(kind, "kill", tmp_path, KILLS, 20261126)
    assert found["kills"] >= KILLS
    assert found["orphans"] >= scale(0, 5, 50)
    for each in sorted(tmp_path.glob("table*")):
        check_whole(Lake(kind, each))


@pytest.mark.scaled(quick=0)  # a quick run has one writer of each kind that is killed, and second writers, below
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_at_once_add_each_part_once(kind: str, tmp_path: Path) -> None:
    nursery(kind, "race", tmp_path, RACES, 0)
    for each in sorted(tmp_path.glob("table*")):
        check_whole(Lake(kind, each))


@pytest.mark.parametrize("number", [1, 0])
def test_a_second_writer_of_the_same_or_another_part_is_seen_before_the_commit(lake: Lake, number: int) -> None:
    write_all(lake, [0] if number else [])
    first, second = lake.target(), lake.target()
    first.open()
    second.open()
    frame = Meanwhile(rows_of(1), lambda: second.write(part_of(number), Frame(rows_of(number))))
    assert first.write(part_of(1), frame).messages == len(rows_of(1))
    check_whole(lake, 2)


def test_other_offsets_under_the_same_number_are_an_error(lake: Lake) -> None:
    write_all(lake, [0])
    target = lake.target()
    target.open()
    other = part_of(1)
    changed = type(other)(window=part_of(0).window, number=0, offsets=other.offsets, planned_ms=other.planned_ms)
    with pytest.raises(TargetChangedError, match=r"part 0 of .* has other offsets"):
        target.write(changed, Frame(rows_of(1)))
    check_whole(lake, 1)


def test_files_of_a_killed_writer_are_removed(lake: Lake) -> None:
    write_all(lake, [0])
    target = lake.target()
    target.open()
    attempt = target.attempts.start()
    write_files(Frame(rows_of(1)), target.layout(), attempt.directory)
    write_all(lake, [0])
    assert len(lake.files() - lake.paths()) == 2  # the writer may be alive
    lake.age()
    write_all(lake, [0])
    check_whole(lake, 1)


def test_no_committed_file_is_removed_even_if_the_ledger_is_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(lake)
    lake.age()
    target = lake.target()
    monkeypatch.setattr(target, "ledger", list)
    target.open()
    target.close()
    check_whole(lake)
    (lake.target()).open()
    check_whole(lake)


def test_a_table_whose_leftovers_cannot_be_removed_is_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError("not allowed to list")

    monkeypatch.setattr(Attempts, "clean", refuse)
    write_all(lake)
    check_whole(lake)
    assert "files of killed runs are not removed: PermissionError: not allowed to list" in caplog.text


def test_files_of_a_live_writer_stay(lake: Lake) -> None:
    first, second = lake.target(), lake.target()
    first.open()
    first.write(part_of(0), Meanwhile(rows_of(0), second.open, after=True))
    check_whole(lake, 1)


def test_files_that_no_task_returned_are_removed(lake: Lake) -> None:
    target = lake.target()
    target.open()
    target.write(part_of(0), Twice(rows_of(0)))
    check_whole(lake, 1)


def test_other_jobs_have_parts_of_their_own(lake: Lake) -> None:
    write_all(lake, [0])
    for job in (Job(request(tags="paid")), Job(request(["refunds"]))):
        target = lake.target(job=job)
        target.open()
        assert target.parts() == []
        target.write(part_of(0), Frame(rows_of(0)))
        target.close()
    assert lake.rows().num_rows == 3 * len(rows_of(0))


def test_a_topic_of_another_job_is_refused(lake: Lake) -> None:
    write_all(lake, [0])
    with pytest.raises(ConfigError, match="gets messages of orders from a job for orders"):
        lake.target(job=Job(request(["orders", "refunds"]))).open()


def compacted(lake: Lake, keep: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> None:
    """Rewrite all rows, as other writers do."""
    table = lake.load()
    if lake.kind == "delta":
        write_deltalake(table, keep(table.to_pyarrow_table()), mode="overwrite")
    else:
        table.overwrite(keep(table.scan().to_arrow()))


def write_parts(lake: Lake, parts: int = 2) -> None:
    target = lake.target(by=["topic"])
    target.open()
    for number in range(parts):
        target.write(part_of(number), Frame(rows_of(number)))
    target.close()


def run_again(lake: Lake, numbers: Sequence[int] = (0, 1, 2)) -> None:
    target = lake.target(by=None)
    target.open()
    there = {each.window for each in target.parts()}
    for number in numbers:
        if part_of(number).window not in there:
            target.write(part_of(number), Frame(rows_of(number)))
    target.close()


def test_parts_are_known_by_their_rows_after_a_compaction(lake: Lake) -> None:
    write_parts(lake)
    compacted(lake)
    assert not lake.paths() & lake.files()
    run_again(lake)
    assert lake.rows().equals(expected(3))


def test_a_window_is_written_again_after_its_rows_were_deleted(lake: Lake) -> None:
    write_parts(lake)
    compacted(lake, lambda rows: rows.filter(pc.field("queueOffset") >= ROWS_OF_A_PART // 2))
    run_again(lake)
    assert lake.rows().equals(expected(3))


def doubled(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def without_keys(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 0), rows.select(["topic", "body"]).slice(0, 1)], promote_options="default")


CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "39 of its 40 messages are there": lambda rows: rows.slice(1),
    "some of its messages are there twice": doubled,
    "the table has rows in which one of `topic, queueId, queueOffset` is null": without_keys,
}


@pytest.mark.parametrize("reason", CHANGES)
def test_a_part_that_a_rewritten_table_holds_partly_is_an_error(lake: Lake, reason: str) -> None:
    write_parts(lake)
    compacted(lake, CHANGES[reason])
    rows = lake.rows()
    with pytest.raises(TargetUnclearError, match=f"whether part . of .* was written cannot be told: .*{reason}"):
        run_again(lake)
    assert lake.rows().equals(rows)


def some_rows(first: int, end: int) -> pa.Table:
    return rows_of(0).filter(pc.field("queueId") == 0).slice(first, end - first)


def write_again(lake: Lake, spans: Sequence[tuple[int, int]]) -> list[Any]:
    """Write parts of one window and one queue, from a table without them; return where the table was and is."""
    places = []
    for number, (first, end) in enumerate(spans):
        target = lake.target(by=["topic"])
        target.open()
        places.append(place_now(lake))
        offsets = {QueueKey("orders", 0): (first, end)}
        after = {QueueKey("orders", 0): first} if number else {}
        target.write(replace(part_of(0), number=number, offsets=offsets, after=after), Frame(some_rows(first, end)))
        target.close()
    return [*places, place_now(lake)]


def place_now(lake: Lake) -> Any:
    return lake.load().version() if lake.kind == "delta" else lake.load().current_snapshot().snapshot_id


def go_to(lake: Lake, place: Any) -> None:
    if lake.kind == "delta":
        lake.load().restore(place)
    else:
        lake.load().manage_snapshots().set_current_snapshot(place).commit()


def written_twice(lake: Lake, spans: Sequence[tuple[int, int]]) -> None:
    """Write two parts, offsets 0 to 2 and 2 to 6; go back, write others, and return to the two."""
    target = lake.target(by=["topic"])
    target.open()
    target.write(part_of(1), Frame(rows_of(1)))  # an empty Iceberg table has no snapshot
    start, *_, both = write_again(lake, [(0, 2), (2, 6)])
    go_to(lake, start)
    write_again(lake, spans)
    go_to(lake, both)


@pytest.mark.parametrize("spans", [[(0, 4)], [(0, 4), (4, 8)], [(0, 1), (1, 3), (3, 8)]])
def test_of_parts_that_were_written_again_those_that_the_rows_are_of_are_held(
    lake: Lake, spans: Sequence[tuple[int, int]]
) -> None:
    written_twice(lake, spans)
    compacted(lake)
    target = lake.target(by=None)
    target.open()
    assert [each.offsets for each in target.parts(0, part_of(0).window.end_ms)] == [
        {QueueKey("orders", 0): span} for span in ((0, 2), (2, 6))
    ]


def test_rows_after_the_end_of_the_parts_that_are_held_are_unclear(lake: Lake) -> None:
    written_twice(lake, [(0, 4)])
    compacted(lake, lambda rows: rows.filter(pc.field("queueOffset") != 4))
    target = lake.target(by=None)
    target.open()
    with pytest.raises(TargetUnclearError, match=r"part 1 of .* 1 of its 4 messages are there"):
        target.parts()


def test_other_windows_are_written_beside_an_unclear_window(lake: Lake) -> None:
    write_parts(lake)
    compacted(lake, lambda rows: rows.slice(1))
    target = lake.target(by=None)
    target.open()
    assert target.parts(part_of(2).window.start_ms) == []
    target.write(part_of(2), Frame(rows_of(2)))
    assert len(target.recorded()) == 3


def test_files_that_were_rewritten_without_the_columns_of_a_key_are_unclear(lake: Lake) -> None:
    columns = pa.schema([COLUMNS.field(each) for each in ("storeTimestamp", "body")])
    for _ in range(2):
        target = lake.target(columns, by=[])
        target.open()
        target.write(part_of(0), Frame(rows_of(0).select(columns.names)))  # known by the names of its files
    compacted(lake)
    with pytest.raises(TargetUnclearError, match="rewritten without `queueId, queueOffset, topic`"):
        target.write(part_of(0), Frame(rows_of(0).select(columns.names)))


def test_compacted_rows_of_two_jobs_with_the_same_topic_are_unclear(lake: Lake) -> None:
    write_parts(lake)
    other = lake.target(job=Job(request(tags="paid")), by=None)
    other.open()
    other.write(part_of(3), Frame(rows_of(3)))
    run_again(lake, [0, 1])
    compacted(lake)
    with pytest.raises(TargetUnclearError, match="other jobs write the same topics"):
        run_again(lake)


def day_of(numbers: Sequence[int]) -> Part:
    """Return a part with the messages of some hours."""
    parts = [part_of(each) for each in numbers]
    window = Window(parts[0].window.start_ms, parts[-1].window.end_ms)
    spans = {key: (first, parts[-1].offsets[key][1]) for key, (first, _) in parts[0].offsets.items()}
    return Part(window=window, number=0, offsets=spans, planned_ms=window.end_ms)


def test_windows_of_two_runs_at_once_that_overlap_are_refused_at_the_commit(lake: Lake) -> None:
    first, second = lake.target(), lake.target()
    first.open()
    second.open()
    rows = pa.concat_tables([rows_of(0), rows_of(1)])
    late = Meanwhile(rows_of(0), lambda: second.write(day_of([0, 1]), Frame(rows)))
    with pytest.raises(ConfigError, match="overlaps"):
        first.write(part_of(0), late)
    check_whole(lake, 2)


def test_a_part_is_refused_after_its_predecessor_was_removed(lake: Lake) -> None:
    target = lake.target()
    target.open()
    part = replace(part_of(0), number=1, after={QueueKey("orders", 0): 7})
    with pytest.raises(TargetChangedError, match=r"got or lost messages of .* since part 1 was planned"):
        target.write(part, Frame(rows_of(0)))
    assert lake.rows().num_rows == 0


def opened_by(lake: Lake, store: Path, **how: Any) -> list[Any]:
    target = lake.target(job=Job(request(store=store), **how), by=None)
    target.open()
    found = target.parts()
    target.close()
    return list(found)


def test_a_store_is_the_same_by_another_path(lake: Lake, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / ".segmentlog").mkdir(parents=True)
    target = lake.target(job=Job(request(store=store)))
    target.open()
    target.write(part_of(0), Frame(rows_of(0)))
    target.close()
    (tmp_path / "link").symlink_to(store)
    assert len(opened_by(lake, tmp_path / "link")) == 1
    assert len(opened_by(lake, tmp_path / "link" / ".." / "store")) == 1
    (store / ".segmentlog" / "id").write_text("0" * 32)
    assert len(opened_by(lake, store)) == 1  # it got an id meanwhile


def test_a_job_that_reads_another_store_is_refused_unless_it_is_asked_for(lake: Lake, tmp_path: Path) -> None:
    write_all(lake, [0])
    with pytest.raises(ConfigError, match=r"messages of orders from a job that reads /data/store\. .*--new-job"):
        opened_by(lake, tmp_path / "store")
    assert opened_by(lake, tmp_path / "store", is_new=True) == []
    target = lake.target(job=Job(request(store=tmp_path / "store"), is_new=True))
    target.open()
    target.write(part_of(0), Frame(rows_of(0)))
    target.close()
    assert len(opened_by(lake, tmp_path / "store")) == len(opened_by(lake, Path("/data/store"))) == 1


def test_jobs_that_begin_at_once_for_two_stores_are_told_apart_at_the_commit(lake: Lake, tmp_path: Path) -> None:
    first, second = lake.target(), lake.target(job=Job(request(store=tmp_path / "store")))
    first.open()
    if lake.kind == "delta":
        pytest.skip("a job of a Delta table is noted when it is opened")
    second.open()
    late = Meanwhile(rows_of(0), lambda: first.write(part_of(0), Frame(rows_of(0))))
    with pytest.raises(ConfigError, match="from a job that reads /data/store"):
        second.write(part_of(0), late)
    check_whole(lake, 1)


def test_a_job_is_the_same_with_other_sizes_of_tasks() -> None:
    assert Job(request()).id == Job(request(maxBytesPerPartition="5m")).id
    assert len({Job(request()).id, Job(request(["refunds"])).id, Job(request(tags="paid")).id}) == 3


@pytest.mark.parametrize(
    ("column", "kind", "found"),
    [
        ("queueId", pa.string(), "`queueId` is int32 in the table, not string"),
        ("tags", pa.string(), r"`tags` \(string\) is not in the table"),
    ],
)
def test_another_schema_is_refused_with_all_differences(lake: Lake, column: str, kind: pa.DataType, found: str) -> None:
    write_all(lake, [0])
    fields = {each.name: each.type for each in COLUMNS} | {column: kind}
    with pytest.raises(ConfigError, match=found):
        lake.target(pa.schema(list(fields.items())), by=None).open()
    check_whole(lake, 1)


def test_other_partitions_are_refused(lake: Lake) -> None:
    write_all(lake, [0])
    with pytest.raises(ConfigError, match="partition"):
        lake.target(by=["topic"]).open()
    lake.target(by=None).open()


def test_a_location_that_cannot_be_written_is_an_error(lake: Lake, tmp_path: Path) -> None:
    target = Lake("delta", Path("/proc/none")).target()
    if lake.kind == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "file:///proc/none"}
        target = IcebergTarget("lake.messages", COLUMNS, Job(request()), catalog="test", properties=catalog)
    with pytest.raises(ConfigError, match="cannot be opened or created"):
        target.open()


def test_more_partitions_than_open_files_are_written(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_OPEN_FILES", 4)
    rows = rows_of(0, 40)
    times = pa.array([each * 86_400_000_000 // 4 for each in range(40)], COLUMNS.field("storeTimestamp").type)
    rows = rows.set_column(3, COLUMNS.field("storeTimestamp"), times)
    target = lake.target(by=["day", "queue"])
    target.open()
    assert target.write(part_of(0, 40), Frame(rows, 7)).files == 20
    assert lake.rows().equals(rows)


class Twice(Frame):
    """Frame whose task runs twice, as with speculation; one result counts."""

    def mapInArrow(self, work: Any, schema: str) -> Frame:  # noqa: N802 - Spark's
        super().mapInArrow(work, schema)
        return super().mapInArrow(work, schema)
