"""Timers of a copy: where its broker begins to read them.

::

    config/timercheck      0 int64 time up to which timers are delivered     8 int64 flushed bytes of timerlog/
                          16 int64 next queue offset of rmq_sys_wheel_timer  24 int64 the same, of the master

    rmq_sys_wheel_timer/0  [delivered][delivered][pending][delivered][pending] │ not read yet
                                                 ▲ of a copy                   ▲ of the source

A broker has the timers that it has read in ``timerwheel`` and ``timerlog/``, which a copy does not have. A broker that
begins at the first pending one loses none, and delivers again what was delivered after it.
RocketMQ: ``TimerCheckpoint``, ``TimerMessageStore.recover``.
"""

import struct
from typing import Final

from ..filter.evaluate import Sql92Filter
from ..read.snapshot import Snapshot
from ..read.spec import OnLoss, Predicate, ScanSpec
from ..types import QueueKey, QueueRange

_LONGS: Final = struct.Struct(">qqqq")
_TIMERS: Final = QueueKey("rmq_sys_wheel_timer", 0)
_TASK_BYTES: Final = 32 << 20
_LONG_MIN: Final = 1 << 31
"""Least number that a filter compares as one of 64 bits."""


def timer_check_of(copied: Snapshot, source: bytes) -> bytes:
    """Return the ``timercheck`` of a copy, from the one of its source."""
    if len(source) < _LONGS.size:
        return source
    delivered_ms, _, own, master = _LONGS.unpack_from(source)
    first = min(own, master)
    has_timers = _TIMERS.topic in copied.topics()
    for bounds in copied.queues(_TIMERS.topic) if has_timers else ():
        pending = Predicate(filter=Sql92Filter.compile(f"TIMER_OUT_MS >= {max(delivered_ms, _LONG_MIN)}"))
        spec = ScanSpec(columns=("queueOffset",), predicate=pending, on_loss=OnLoss.SKIP)
        read = QueueRange(_TIMERS, bounds.min_offset, max(min(first, bounds.max_offset), bounds.min_offset))
        batches = (each for task in copied.plan([read], max_bytes=_TASK_BYTES) for each in copied.scan(task, spec))
        first = next((batch["queueOffset"][0].as_py() for batch in batches if batch.num_rows), first)
    return _LONGS.pack(delivered_ms, 0, first, first) + source[_LONGS.size :]
