import subprocess
import sys

import pytest

LOADED = "import sys, {module}; print(*sys.modules)"
WRITE = {
    "segmentlog.store.write.batch_commit",
    "segmentlog.store.groups.admin",
    "segmentlog.store.write.message_store",
    "segmentlog.store.write.put_path",
    "segmentlog.store.recovery.decide",
}


def loaded(module: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split())


def test_reading_modules_do_not_load_writing_modules() -> None:
    modules = ["store", "store.groups", "store.sink", "store.follow", "connector", "connector.read"]
    assert not loaded(", ".join(f"segmentlog.{module}" for module in modules)) & WRITE


def test_the_doors_load_nothing_by_themselves() -> None:
    assert not loaded("segmentlog.store, segmentlog.store.groups, segmentlog.connector") & {"numpy", "pyarrow"}


@pytest.mark.slow
def test_each_process_of_a_query_loads_its_own_part() -> None:
    parts = {
        "segmentlog.connector.read",
        "segmentlog.connector.stream.reader",
        "segmentlog.connector.write.writer",
    }
    assert not loaded("segmentlog.connector.source") & (WRITE | parts)
    assert not loaded("segmentlog.connector.stream.reader") & {
        "segmentlog.store.write.message_store",
        "pyarrow.compute",
    }
