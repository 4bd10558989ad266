import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from segmentlog.jobs.lake import delta
from segmentlog.jobs.lake.delta import DeltaTarget
from segmentlog.jobs.lake.target import Job
from segmentlog.store import ConfigError
from support.lake import COLUMNS, Frame, Lake, Meanwhile, expected, part_of, request, rows_of, write_all


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake("delta", tmp_path)


def test_days_and_hours_are_columns_that_polars_reads(lake: Lake) -> None:
    write_all(lake)
    found = pl.read_delta(str(lake.table)).sort("queueOffset", "queueId")
    assert found["body"].to_list() == expected()["body"].to_pylist()
    assert found["queueId"].to_list() == expected()["queueId"].to_pylist()
    assert found["day"].unique().to_list() == [found["storeTimestamp"][0].date()]
    assert sorted(found["hour"].unique().to_list()) == list(range(6))


def test_topics_with_special_characters_are_read_by_all(lake: Lake) -> None:
    topics = ["%RETRY%group a", "p=q", "a/b", "ü"]
    target = lake.target(by=["topic", "queue"])
    target.open()
    target.write(part_of(0), Frame(pa.concat_tables([rows_of(0, topic=topic) for topic in topics])))
    assert sorted(lake.rows()["topic"].unique().to_pylist()) == sorted(topics)
    assert sorted(pl.read_delta(str(lake.table))["topic"].unique().to_list()) == sorted(topics)


def test_adds_have_statistics(lake: Lake) -> None:
    write_all(lake, [0])
    adds = pa.table(lake.load().get_add_actions(flatten=True)).to_pylist()
    assert {each["num_records"] for each in adds} == {20}
    assert {(each["min.queueOffset"], each["max.queueOffset"], each["null_count.body"]) for each in adds} == {
        (0, 19, 0)
    }


def test_the_transaction_counts_parts_and_the_commit_names_them(lake: Lake) -> None:
    write_all(lake, range(3))
    table = lake.load()
    (job,) = {each["segmentlogJob"] for each in table.history() if "segmentlogJob" in each}
    assert table.transaction_version(f"segmentlog-{job}") == 3
    part, written, _ = json.loads(table.history(1)[0]["segmentlogPart"])
    assert (part["offsets"], written[0]) == ([["orders", 0, 40, 60], ["orders", 1, 40, 60]], 40)


def forget(lake: Lake) -> None:
    """Remove the commits that a checkpoint covers, as the clean-up of a log does after a month."""
    table = lake.load()
    table.create_checkpoint()
    for each in (lake.table / "_delta_log").glob("*.json"):
        if int(each.stem) < table.version():
            each.unlink()


def lose_ledger(lake: Lake) -> None:
    (ledger,) = (lake.table / "_segmentlog").glob("*.ledger")
    ledger.unlink()


def compact(lake: Lake) -> None:
    table = lake.load()
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


MAINTENANCE: dict[str, Callable[[Lake], object]] = {
    "the log forgets commits, which are in the ledger": forget,
    "the ledger is lost, and written again from the log": lose_ledger,
    "compaction and vacuum": compact,
    "a restore removes parts": lambda lake: lake.load().restore(1),
}


@pytest.mark.parametrize("name", MAINTENANCE)
def test_each_part_is_there_once_after_maintenance(lake: Lake, name: str) -> None:
    write_all(lake, range(3))
    MAINTENANCE[name](lake)
    write_all(lake)
    assert lake.rows().equals(expected())
    forget(lake)
    lake.target().open()


def test_a_ledger_that_lacks_forgotten_parts_is_an_error(lake: Lake) -> None:
    write_all(lake, range(3))
    forget(lake)
    lose_ledger(lake)
    with pytest.raises(ConfigError, match="has 3 parts of this job, and its log and ledger name 1"):
        lake.target().open()


def set_rules(lake: Lake, features: list[str] | None, field: dict[str, Any] | None = None, version: int = 7) -> None:
    """Change protocol and schema as other writers do."""
    table = lake.load()
    (first, *_) = (lake.table / "_delta_log").glob(f"{0:020d}.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    metadata = next(each["metaData"] for each in actions if "metaData" in each)
    schema = json.loads(metadata["schemaString"])
    if field is not None:
        schema["fields"] = [each for each in schema["fields"] if each["name"] != field["name"]] + [field]
    metadata["schemaString"] = json.dumps(schema)
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": version}
    if features is not None:
        protocol["writerFeatures"] = features
    path = lake.table / "_delta_log" / f"{table.version() + 1:020d}.json"
    path.write_text("\n".join(map(json.dumps, [{"protocol": protocol}, {"metaData": metadata}])))


def column(name: str, **metadata: object) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": metadata}


RULES: dict[str, tuple[list[str] | None, dict[str, Any] | None, int]] = {
    "the invariant of the column `queueOffset`": (
        ["invariants"],
        column("queueOffset", **{"delta.invariants": '{"expression": {"expression": "queueOffset < 20"}}'}),
        7,
    ),
    "the expression of the column `size`": (
        None,
        column("size", **{"delta.generationExpression": "length(body)"}),
        4,
    ),
    "the identity of the column `id`, the feature identityColumns": (
        None,
        column("id", **{"delta.identity.start": 1, "delta.identity.step": 1}),
        6,
    ),
    "the default of the column `size`, which is not written": (
        ["invariants"],
        column("size", CURRENT_DEFAULT="0"),
        7,
    ),
    "the feature domainMetadata, the feature rowTracking": (["rowTracking", "domainMetadata"], None, 7),
    "the feature inCommitTimestamp": (["inCommitTimestamp"], None, 7),
    "the feature ofTheFuture": (["ofTheFuture"], None, 7),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_a_backfill_cannot_follow_are_refused_with_their_names(lake: Lake, rule: str) -> None:
    write_all(lake, [0])
    features, field, version = RULES[rule]
    set_rules(lake, features, field, version)
    with pytest.raises(ConfigError, match=rf"cannot follow: {re.escape(rule)}\."):
        write_all(lake)
    assert lake.load().version() == 2


@pytest.mark.parametrize("feature", ["appendOnly", "changeDataFeed", "invariants", "checkConstraints"])
def test_features_without_a_rule_are_accepted(lake: Lake, feature: str) -> None:
    write_all(lake, [0])
    set_rules(lake, [feature])
    write_all(lake)
    assert lake.load().version() == 1 + 6


def test_a_constraint_that_is_added_while_tasks_write_is_seen_before_the_commit(lake: Lake) -> None:
    target = lake.target()
    target.open()

    def constrain() -> None:
        lake.load().alter.add_constraint({"small": "queueOffset < 20"})

    with pytest.raises(ConfigError, match="cannot follow: the constraint `small`"):
        target.write(part_of(1), Meanwhile(rows_of(1), constrain))
    assert (lake.rows().num_rows, lake.files()) == (0, set())


def test_a_commit_that_cannot_succeed_is_tried_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(lake, [0])
    monkeypatch.setattr(delta, "check_rules", lambda *_: None)
    set_rules(lake, ["rowTracking", "domainMetadata"])
    target = lake.target()
    target.open()
    with pytest.raises(ConfigError, match=r"cannot be committed to: .*RowTracking"):
        target.write(part_of(1), Frame(rows_of(1)))


def test_no_table_is_made_among_other_files(lake: Lake) -> None:
    lake.table.mkdir()
    (lake.table / "commitlog").mkdir()
    with pytest.raises(ConfigError, match="the target holds something else already: `commitlog`") as raised:
        lake.target().open()
    assert raised.value.path == str(lake.table)
    assert [each.name for each in lake.table.iterdir()] == ["commitlog"]


def test_no_table_is_made_within_the_store(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="target: this directory and that of the store have to be beside each other"):
        DeltaTarget(str(lake.directory / "store" / "table"), COLUMNS, Job(request(store=lake.directory / "store")))


def test_a_damaged_table_is_refused(lake: Lake) -> None:
    (lake.table / "_delta_log").mkdir(parents=True)
    (lake.table / "_delta_log" / "00000000000000000000.json").write_text("damaged")
    with pytest.raises(ConfigError, match="cannot be opened or created"):
        lake.target().open()


def test_a_column_called_day_is_that_of_the_frame(lake: Lake) -> None:
    target = lake.target(pa.schema([*COLUMNS, ("day", pa.string())]), by=["day"])
    target.open()
    target.write(part_of(0), Frame(rows_of(0).append_column("day", pa.array(["x"] * 40))))
    assert set(lake.load().to_pyarrow_table()["day"].to_pylist()) == {"x"}
