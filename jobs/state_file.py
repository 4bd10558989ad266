"""State files of jobs: written whole and synced, and refused when they are of another job."""

import json
import os
from collections.abc import Mapping
from typing import Final

from segmentlog.store import ConfigError

FIX: Final = "Name another file with --state, or delete this one if its job does not matter"
"""Remedy of a state file that does not fit."""


def check_asked(path: str, former: Mapping[str, object], asked: Mapping[str, object]) -> None:
    """Raise `ConfigError` if a file is of a job that was asked for something else."""
    wanted = json.loads(json.dumps(dict(asked)))
    for name in sorted({*former, *wanted}):
        if former.get(name) != wanted.get(name):
            problem = f"--state {path} is of another job: {name} was {former.get(name)!r}, and is {wanted.get(name)!r}"
            raise ConfigError(problem, fix=FIX)


def write_whole(path: str, document: object, making: str) -> None:
    """Write JSON at the path ``making``, and rename it: the file is whole or as before, and synced with its name."""
    with open(making, "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(making, path)
    sync(os.path.dirname(os.path.abspath(path)))


def sync(path: str) -> None:
    """Sync a file or a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
