"""What the packages hand out, and what it loads."""

import subprocess
import sys

import pytest

import segmentlog.connector
import segmentlog.store

LOADED = "import sys, {module}; print(*sys.modules)"
WRITE = {
    "segmentlog.store.write.batch_commit",
    "segmentlog.store.groups.admin",
    "segmentlog.store.write.message_store",
    "segmentlog.store.write.put_path",
    "segmentlog.store.recovery.decide",
}


@pytest.mark.parametrize("package", [segmentlog.store, segmentlog.connector], ids=lambda package: package.__name__)
def test_all_that_is_promised_is_there(package: object) -> None:
    names = list(package.__all__)
    assert len(set(names)) == len(names)
    assert all(getattr(package, name) is not None for name in names)
    assert set(package._HOME_OF) <= set(names)
    with pytest.raises(AttributeError, match="has no attribute 'StoreReadr'"):
        package.StoreReadr  # noqa: B018


def loaded(module: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    "module", ["segmentlog.store", "segmentlog.connector", "segmentlog.connector.read.batch_reader"]
)
def test_who_reads_does_not_load_what_writes(module: str) -> None:
    found = loaded(module)
    assert module in found
    assert not found & WRITE


def test_each_process_of_a_query_loads_its_own_part() -> None:
    parts = {
        "segmentlog.connector.read.batch_reader",
        "segmentlog.connector.stream.reader",
        "segmentlog.connector.write.writer",
    }
    assert not loaded("segmentlog.connector.source") & (WRITE | parts)
    assert not loaded("segmentlog.connector.stream.reader") & {
        "segmentlog.store.write.message_store",
        "pyarrow.compute",
    }
