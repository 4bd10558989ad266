"""Queue directories that are missing, or replaced by something else: every message of the log is read."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, QueueSource, StoreReader
from segmentlog.store.maintenance import verify
from support.live_copy import copy_live
from support.reading import read
from support.scale import scale
from support.written_stores import SMALL, message

pytestmark = [pytest.mark.attack, pytest.mark.scaled]


def rows(path: Path, source: QueueSource) -> list[tuple[str, int, int, int]]:
    found = read(StoreReader.open(path, queue_source=source))
    return sorted((row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"]) for row in found)


def written(path: Path, draw: random.Random, *, killed: bool) -> None:
    """Write a store; a killed one is a copy of the directory while the store is open."""
    source = path.with_name(f"{path.name}-open")
    with MessageStore.open(source, SMALL) as store:
        for serial in range(draw.randrange(50, 400)):
            store.append(message(1, draw.randrange(3), serial))
        if killed:
            copy_live(source, path)
    if not killed:
        source.rename(path)


def damaged(path: Path, draw: random.Random) -> list[Path]:
    """Take directories of queues away, and put something else in place of some; return the paths."""
    # A broker announces retry topics before they have messages: docs/reader.md lists what `auto` cannot know.
    queues = sorted(each for each in (path / "consumequeue").glob("*/*") if not each.parent.name.startswith("%"))
    lost = [each for each in queues if draw.random() < 0.3] or [draw.choice(queues)]
    for each in lost:
        shutil.rmtree(each)
        match draw.randrange(3):
            case 1:
                os.mkfifo(each)
            case 2:
                each.write_bytes(b"not a directory")
    return lost


def test_every_message_is_read_and_the_queues_are_written_again(
    tmp_path: Path, report: Callable[[str, object], None]
) -> None:
    lost = 0
    for number in range(scale(6, 25, 1000)):
        draw, path = random.Random(number), tmp_path / f"store{number}"
        written(path, draw, killed=number % 2 > 0)
        wanted = rows(path, QueueSource.COMMIT_LOG)
        missing = damaged(path, draw)
        assert rows(path, QueueSource.AUTO) == wanted, number
        assert not verify(path).is_sound
        for each in missing:
            each.unlink(missing_ok=True)
        MessageStore.open(path, SMALL).close()
        assert rows(path, QueueSource.AUTO) == wanted, number
        assert verify(path).is_sound
        lost += len(missing)
        shutil.rmtree(path)
    report("queues without their directory", lost)
