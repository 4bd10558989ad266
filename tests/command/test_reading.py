import argparse
from pathlib import Path

import pytest

from segmentlog.command.reading import opened, source_of
from segmentlog.store import NotAStoreError


def test_the_store_and_its_log_elsewhere(store: Path, tmp_path: Path) -> None:
    options = argparse.Namespace(store=str(store), commit_log=[], storage=[], cache_dir=None)
    with opened(options) as found:
        assert found.path == str(store)
    assert "orders" in source_of(options).open().topics()
    moved = argparse.Namespace(store=str(store), commit_log=[str(store / "commitlog")], storage=[], cache_dir=None)
    assert "orders" in source_of(moved).open().topics()


def test_no_store(tmp_path: Path) -> None:
    options = argparse.Namespace(store=str(tmp_path), commit_log=[], storage=[], cache_dir=None)
    with pytest.raises(NotAStoreError):
        opened(options)
    with pytest.raises(NotAStoreError):
        source_of(options).open()
