"""The door of the store: what it loads, and names that moved."""

import importlib
import subprocess
import sys

import pytest

import segmentlog.store

LOADED = "import sys, {module}; print(*sys.modules)"
WRITE = {
    "segmentlog.store.write.batch_commit",
    "segmentlog.store.groups.admin",
    "segmentlog.store.write.message_store",
    "segmentlog.store.write.put_path",
    "segmentlog.store.recovery.decide",
}


MOVED = {
    "segmentlog.store.groups": ["GroupProgress", "list_groups", "reset_group"],
    "segmentlog.store.maintenance": ["rebuild_index", "salvage", "verify"],
    "segmentlog.store.sink": ["Staging", "commit_batch", "last_commit"],
    "segmentlog.store.follow": ["QueueWatch", "measure_lag", "message_identity"],
}
"""Some names of each door that `segmentlog.store` had once."""


@pytest.mark.parametrize(("door", "name"), [(door, name) for door, names in MOVED.items() for name in names])
def test_a_name_that_moved_is_found_with_a_warning(door: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"segmentlog.store.{name} moved: import it from {door}"):
        found = getattr(segmentlog.store, name)
    assert found is getattr(importlib.import_module(door), name)
    assert name not in dir(segmentlog.store)


@pytest.mark.parametrize("door", ["segmentlog.store", "segmentlog.store.follow"])
@pytest.mark.parametrize(("name", "current"), [("Backlog", "Lag"), ("backlogs", "measure_lag")])
def test_a_name_that_was_changed_is_found_with_a_warning(door: str, name: str, current: str) -> None:
    module = importlib.import_module(door)
    with pytest.warns(
        DeprecationWarning, match=rf"{door}\.{name} is renamed: import {current} from segmentlog.store.follow"
    ):
        found = getattr(module, name)
    assert found is getattr(importlib.import_module("segmentlog.store.follow"), current)
    assert name not in dir(module)


def loaded(module: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "segmentlog.store",
        "segmentlog.store.groups",
        "segmentlog.store.sink",
        "segmentlog.store.follow",
        "segmentlog.connector",
        "segmentlog.connector.read.batch_reader",
    ],
)
def test_who_reads_does_not_load_what_writes(module: str) -> None:
    found = loaded(module)
    assert module in found
    assert not found & WRITE


def test_the_doors_load_nothing_by_themselves() -> None:
    assert not loaded("segmentlog.store, segmentlog.store.groups, segmentlog.connector") & {"numpy", "pyarrow"}


@pytest.mark.slow
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
