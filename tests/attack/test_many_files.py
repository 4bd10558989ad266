"""Ten thousand queues in fifty thousand files, with 256 descriptors and 4 GiB of addresses; fewer while writing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from support.store_builder import Geometry, StoreBuilder

pytestmark = pytest.mark.attack

WRITING_PROBE = Path(__file__).parent / "descriptors_probe.py"
PROBE = Path(__file__).parent / "many_files_probe.py"
TOPICS, QUEUES, MESSAGES = 200, 50, 18
GEOMETRY = Geometry(segment_bytes=1 << 18, queue_segment_entries=4)
MAPS_MAX = 16 + 1  # what CommitLog keeps, and one that a batch still holds


@pytest.mark.scaled(quick=0)
def test_ten_thousand_queues(tmp_path: Path) -> None:
    numbers = np.arange(TOPICS * QUEUES * MESSAGES)
    queue = numbers % (TOPICS * QUEUES)
    with StoreBuilder(tmp_path / "store", geometry=GEOMETRY) as builder:
        builder.append(
            pa.record_batch(
                {
                    "topic": pa.array([f"Topic{i:03d}" for i in range(TOPICS)]).take(pa.array(queue // QUEUES)),
                    "queueId": pa.array((queue % QUEUES).astype(np.int32)),
                    "body": pa.array([b"a body of a few bytes"] * numbers.size, pa.binary()),
                    "storeTimestamp": pa.array(1_700_000_000_000 + numbers),
                }
            )
        )
    assert sum(path.is_file() for path in (tmp_path / "store" / "consumequeue").rglob("*")) == 50_000
    segments = len(list((tmp_path / "store" / "commitlog").iterdir()))
    assert segments > 4 * MAPS_MAX
    done = subprocess.run(
        [sys.executable, str(PROBE), str(tmp_path / "store")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    most_maps, most_descriptors = found.pop("most maps"), found.pop("most descriptors")
    assert found == {
        "topics": TOPICS,
        "queues": TOPICS * QUEUES,
        "planned": numbers.size,
        "by queues alone": numbers.size,
        "maps until here": 0,
        "of one queue": MESSAGES,
        "with bodies": numbers.size,
        "leaked descriptors": 0,
    }
    assert MAPS_MAX - 1 <= most_maps <= MAPS_MAX
    assert most_descriptors <= MAPS_MAX  # Python's maps keep one each


@pytest.mark.parametrize("limit", [48, 256])
def test_a_low_limit_of_descriptors_is_kept_while_writing_and_reading(tmp_path: Path, limit: int) -> None:
    queues = 1500
    done = subprocess.run(
        [sys.executable, str(WRITING_PROBE), str(tmp_path / "store"), str(limit), str(queues)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["rows"] == 2 * queues
    assert found["left open"] <= limit // 16
