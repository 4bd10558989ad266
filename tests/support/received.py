"""Messages of the oracle's load, as a stream delivers them: message n of queue q has the key …Mq(1,000,000,000 + n)."""

import time
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIRST_NUMBER: Final = 1_000_000_000
NUMBER_DIGITS: Final = 10
COLUMNS: Final = ("queueId", "queueOffset", "uniqKey")


class Received:
    """Takes in what a stream delivers, in the order in which it does."""

    def __init__(self, queues: int) -> None:
        self.next = [0] * queues
        self.batches = 0
        self._begun: float | None = None
        self._last = 0.0

    @property
    def rows(self) -> int:
        return sum(self.next)

    @property
    def rate(self) -> int:
        return round(self.rows / (self._last - (self._begun or 0.0)))

    def take(self, batch: pa.RecordBatch | pa.Table) -> None:
        self._begun = self._begun or time.monotonic()
        queue_id, offset = (np.asarray(batch.column(name)) for name in COLUMNS[:2])
        number = pc.utf8_slice_codeunits(batch.column("uniqKey"), -NUMBER_DIGITS).cast(pa.int64())
        assert (np.asarray(number) == FIRST_NUMBER + offset).all()
        for each in np.unique(queue_id).tolist():
            found = offset[queue_id == each]
            assert (found == np.arange(self.next[each], self.next[each] + found.size)).all(), f"queue {each}"
            self.next[each] += found.size
        self._last = time.monotonic()
