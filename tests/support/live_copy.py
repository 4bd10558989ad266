"""Copy of a store's directory while its threads work, as ``cp -r`` makes one."""

import shutil
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
