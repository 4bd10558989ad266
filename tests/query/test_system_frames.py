"""Frames by kind."""

from pathlib import Path

import pytest

from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.system_frames import system_batches
from segmentlog.query.system_topics import SystemWindow
from segmentlog.store import StoreReader
from support.system_store import build_system_store


@pytest.mark.parametrize(("kind", "count"), [("delayed", 2), ("transactions", 1), ("trace", 2)])
def test_a_kind_has_the_rows_of_its_frame(kind: str, count: int, tmp_path: Path) -> None:
    batches = list(system_batches(kind, StoreReader.open(build_system_store(tmp_path)), SystemWindow()))
    assert sum(batch.num_rows for batch in batches) == count
    assert {batch.schema for batch in batches} == {SCHEMAS[kind]}
