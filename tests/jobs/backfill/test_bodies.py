from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from segmentlog.jobs import backfill
from segmentlog.jobs.backfill import DEAD_LETTER_COLUMNS, Bodies, Files, Layout, Request
from segmentlog.query.bodies import body_format
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError
from support.dated_store import DAY_MS, START_MS, append_bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BODIES = [b'{"id": "a", "total": 2.5}', b"", b'{"id": 7}', b'{"total": 1}', b"\xff"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bodies") / "store"
    append_bodies(path, BODIES)
    return path


def _request(store: Path, *columns: str) -> Request:
    return Request(
        source=StoreSource.of(store, (), None, None, "appended"),
        topics=("orders",),
        start_ms=START_MS,
        end_ms=START_MS + DAY_MS,
        columns=columns or ("queueOffset", "queueId"),
        body="json",
    )


def _targets(request: Request, path: Path) -> tuple[Files, Bodies]:
    dead = Files(str(path / "dead"), replace(request, columns=DEAD_LETTER_COLUMNS), Layout())
    bodies = Bodies(format=body_format("json", "id string, total double"), dead_letters=dead)
    return Files(str(path / "lake"), request, Layout()), bodies


def _rows(path: Path) -> list[dict[str, Any]]:
    return ds.dataset(path, format="parquet", partitioning="hive").to_table().to_pylist()  # type: ignore[no-any-return]


def test_bodies_become_columns_or_dead_letters(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    request = _request(store, "body")
    target, bodies = _targets(request, tmp_path)
    report = backfill.run(spark, request, target, bodies=bodies)
    assert (report.numbers["messages"], report.numbers["rejected"]) == (2, 3)
    rows = _rows(tmp_path / "lake")
    assert [(row["id"], row["total"]) for row in rows] == [("a", 2.5), (None, 1.0)]
    assert {row["body"] for row in rows} == {BODIES[0], BODIES[3]}
    dead = {row["body"]: row["bodyError"] for row in _rows(tmp_path / "dead")}
    assert set(dead) == {b"", b'{"id": 7}', b"\xff"}
    assert all(dead.values())


def test_dead_letters_of_a_killed_run_are_written_by_the_next(
    spark: "SparkSession", store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(store)
    target, bodies = _targets(request, tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Bodies, "bury", killed)
        with pytest.raises(KeyboardInterrupt):
            backfill.run(spark, request, target, bodies=bodies)
    assert len(target.parts()) == 1
    assert not (tmp_path / "dead" / "day=2026-01-31").exists()
    for _ in range(2):
        backfill.run(spark, request, target, bodies=bodies)
        assert len(_rows(tmp_path / "dead")) == 3
        rows = _rows(tmp_path / "lake")
        assert (len(rows), "body" in rows[0]) == (2, False)


def test_a_column_of_bodies_and_of_messages(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    request = _request(store, "keys")
    target, bodies = _targets(request, tmp_path)
    with pytest.raises(ConfigError, match="the bodies have the column `keys`"):
        backfill.run(spark, request, target, bodies=replace(bodies, format=body_format("json", "keys string")))
