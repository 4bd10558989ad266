import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from segmentlog.store import ConfigError
from support.lake import COLUMNS, Frame, Lake, expected, part_of, rows_of, write_all


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


def test_commits_that_the_log_forgot_are_in_the_ledger(lake: Lake) -> None:
    write_all(lake, range(3))
    forget(lake)
    target = lake.target()
    target.open()
    assert sorted(each.window for each in target.parts()) == [part_of(number).window for number in range(3)]
    target.close()
    write_all(lake)
    assert lake.rows().equals(expected())


def test_a_ledger_that_lacks_forgotten_parts_is_an_error(lake: Lake) -> None:
    write_all(lake, range(3))
    forget(lake)
    for each in (lake.table / "_segmentlog").glob("*.ledger"):
        each.unlink()
    with pytest.raises(ConfigError, match="has 3 parts of this job, and its log and ledger name 1"):
        lake.target().open()


def test_a_lost_ledger_is_written_again_from_the_log(lake: Lake) -> None:
    write_all(lake, range(3))
    (ledger,) = (lake.table / "_segmentlog").glob("*.ledger")
    ledger.unlink()
    write_all(lake)
    assert ledger.exists()
    assert lake.rows().equals(expected())


def test_a_vacuum_and_a_compaction_leave_the_rows(lake: Lake) -> None:
    write_all(lake, range(3))
    table = lake.load()
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    write_all(lake)
    assert lake.rows().equals(expected())


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
