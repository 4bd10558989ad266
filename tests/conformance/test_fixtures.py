"""The fixtures come out as RocketMQ left them: other tests build on it."""

from pathlib import Path

import pytest

from support import fixtures

pytestmark = pytest.mark.conformance


def test_holes_stay_holes(tmp_path: Path) -> None:
    store = fixtures.unpack("default-sizes-4.9.1", tmp_path)
    files = [path for path in store.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 1 << 30
    assert sum(path.stat().st_blocks * 512 for path in files) < 8 << 20


def test_modification_times_are_kept_to_the_nanosecond(tmp_path: Path) -> None:
    store = fixtures.unpack("time-4.9.1", tmp_path)
    assert (store / "commitlog" / f"{0:020d}").stat().st_mtime_ns == 1795227267_935723750
    assert store.stat().st_mtime_ns == 1795227270_167723827
