"""CommitLog directories of a broker's configuration."""

from pathlib import Path

import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.maintenance.broker_paths import BrokerPaths, configured_paths


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("store/commitlog", "store/log", "disk2", "disk3"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "store"


def test_without_directories_the_log_is_in_the_store(store: Path) -> None:
    for conf in ("", "fileReservedTime=3", f"storePathRootDir = {store}/", f"storePathCommitLog={store}/commitlog"):
        assert configured_paths(conf, store) == BrokerPaths((), ())


def test_several_directories_and_read_only_ones(store: Path, tmp_path: Path) -> None:
    conf = (
        f"storePathRootDir={store}\nstorePathCommitLog={store}/log, {tmp_path}/disk2,\n"
        f"readOnlyCommitLogStorePaths={tmp_path}/disk3,{tmp_path}/disk2\n"
    )
    assert configured_paths(conf, store).commit_logs == (f"{store}/log", f"{tmp_path}/disk2", f"{tmp_path}/disk3")


def test_a_copy_of_a_store_has_its_own_directories(store: Path) -> None:
    conf = "storePathRootDir=/data/store\nstorePathCommitLog=/data/store/log"
    found = configured_paths(conf, store)
    assert found.commit_logs == (f"{store}/log",)
    assert found.notes == (f"storePathRootDir of the configuration is /data/store, and not {store}",)


def test_segments_that_the_configuration_does_not_name_are_noted(store: Path, tmp_path: Path) -> None:
    (store / "commitlog" / f"{0:020d}").touch()
    found = configured_paths(f"storePathCommitLog={tmp_path}/disk2", store)
    assert found.commit_logs == (f"{tmp_path}/disk2",)
    assert found.notes == (
        f"{store}/commitlog has segments, and storePathCommitLog of the configuration names other directories",
    )
    assert configured_paths(f"storePathCommitLog={tmp_path}/disk2,{store}/commitlog", store).notes == ()


@pytest.mark.parametrize("name", ["storePathCommitLog", "readOnlyCommitLogStorePaths"])
def test_a_directory_that_is_missing_is_an_error(store: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} of the configuration names a directory that is not there"):
        configured_paths(f"{name}=/no/such/directory", store)
