"""Progress of a broker's delivery of delayed messages, as its configuration has it.

::

    config/delayOffset.json   offsetTable   delay level → next queue offset in SCHEDULE_TOPIC_XXXX   every 10 s
    config/timercheck         int64 time up to which timers are delivered, int64 …                   about every second

A broker delivers further messages before it writes these files again.
RocketMQ: ``ScheduleMessageService``, ``TimerCheckpoint``.
"""

import os
import re
from dataclasses import dataclass
from typing import Final

from ..files.fs import FileSystem
from ..files.small_file import read_front
from ..format.documents import Loaded
from ..format.store_paths import CONFIG, StorePaths
from .documents import load_document
from .layout import require_directory

_DELAY_OFFSETS: Final = "delayOffset.json"
_LEVEL: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class DelayProgress:
    """Positions up to which delayed messages were delivered, as the broker last wrote them.

    Attributes
    ----------
    levels
        Next queue offset by delay level.
    timer_ms
        Timers due before this time were delivered; None if it is unknown.
    """

    levels: dict[int, int]
    timer_ms: int | None


def delay_progress(fs: FileSystem, path: str) -> DelayProgress:
    """Read the progress of a store; `FormatError` if neither ``delayOffset.json`` nor its backup can be parsed."""
    for entry in fs.list_dir(path):
        if entry.name == CONFIG:
            require_directory(entry, os.path.join(path, CONFIG))
    folder = os.path.join(path, CONFIG)
    timer = read_front(fs, StorePaths(path).timer_check, 8) or b""
    timer_ms = int.from_bytes(timer, "big", signed=True) if len(timer) == 8 else 0
    return DelayProgress(
        load_document(fs, os.path.join(folder, _DELAY_OFFSETS), _levels), timer_ms if timer_ms > 0 else None
    )


def _levels(found: Loaded) -> dict[int, int]:
    table = found.document.get("offsetTable")
    if not isinstance(table, dict):
        return {}
    levels = {str(level): offset for level, offset in table.items()}
    return {
        int(level): offset for level, offset in levels.items() if _LEVEL.fullmatch(level) and isinstance(offset, int)
    }
