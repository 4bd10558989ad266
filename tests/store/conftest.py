"""Stores that several tests of reading use."""

from pathlib import Path

import pytest

from segmentlog.store.format.consume_queue import NATIVE, Entries
from support.orders_store import build_orders
from support.store_builder import Appended, Geometry, StoreBuilder, messages
from support.tampering import QueueFiles


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Appended]:
    return tmp_path / "s", build_orders(tmp_path / "s")


@pytest.fixture
def store(built: tuple[Path, Appended]) -> Path:
    return built[0]


@pytest.fixture
def two_queues(tmp_path: Path) -> Path:
    """A store with 50 messages in each of two queues, ten per queue file."""
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=4096, queue_segment_entries=10)) as builder:
        builder.append(messages(100, queues=2))
    return tmp_path / "s"


@pytest.fixture
def sound(two_queues: Path) -> Entries:
    """The entries of its second queue."""
    return QueueFiles(two_queues, "Orders", 1).entries[:50].astype(NATIVE)
