"""Directories that others write: a copy of a store while its threads work, as by ``cp -r``, and a list of files."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def copy_live(store: Path, target: Path) -> Path:
    """Copy what is there; a file that was renamed since its directory was listed is left out.

    Threads of the store make files under other names and rename them, so a plain ``copytree`` now and then fails.
    """

    def copy(source: str, to: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(source, to)

    return Path(shutil.copytree(store, target, copy_function=copy, dirs_exist_ok=True))


def live_paths(root: Path) -> Iterator[Path]:
    """Files and directories below one, while a process makes and deletes some: a glob of pathlib may raise."""
    for folder, names, files in os.walk(root):
        yield from (Path(folder, each) for each in (*names, *files))
