import numpy as np
import pyarrow as pa

from segmentlog.command.receipt import Receipt
from segmentlog.store import AppendedBatch


def test_batches_add_up() -> None:
    receipt = Receipt()
    batch = pa.record_batch({"topic": ["b", "a", "b"], "queueId": pa.array([0, 1, 0], pa.int32())})
    for start in (10, 12):
        offsets = np.array([start, start * 2, start + 1])
        receipt.add(batch, AppendedBatch(offsets, offsets, offsets, 0))
    assert receipt.messages == 6
    assert [tuple(row.values()) for row in receipt.table().to_pylist()] == [("a", 1, 2, 20, 24), ("b", 0, 4, 10, 13)]


def test_an_empty_receipt_has_columns() -> None:
    assert Receipt().table().column_names == ["topic", "queueId", "messages", "firstOffset", "lastOffset"]
