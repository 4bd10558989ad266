"""Archives by their URLs."""

from pathlib import Path

import pytest

from segmentlog.admin import archive_content, archive_prune, archive_pull, archive_push, archive_verify
from segmentlog.store import ConfigError, StoreReader
from support.archived_store import all_rows, write_whole


def test_a_store_is_pushed_listed_verified_pruned_and_pulled(tmp_path: Path) -> None:
    store, url = write_whole(tmp_path / "store", 90), f"file://{tmp_path}/archive"
    (tmp_path / "archive").mkdir()
    assert archive_push(store, url).records == 90
    assert sum(queue.messages for queue in archive_content(url).queues) == 90
    assert archive_verify(url, deep=True).records == 90
    archive_pull(url, tmp_path / "restored")
    assert all_rows(StoreReader.open(tmp_path / "restored")) == all_rows(StoreReader.open(store))
    pieces = archive_content(url).pieces
    assert archive_prune(url, pieces[1].first_time, dry_run=True).pieces == 1
    assert archive_prune(url, pieces[1].first_time).start == pieces[1].start
    archive_pull(url, tmp_path / "part", topics=["refunds"], start_ms=pieces[1].first_time)
    assert archive_verify(url).is_sound


def test_a_path_is_not_a_url(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="URL of an object store"):
        archive_content(str(tmp_path))
