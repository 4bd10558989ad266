"""Processes of tests: those of a session, and those of a fork server, which begin in milliseconds."""

import multiprocessing
import os
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from unittest.mock import patch

TESTS = Path(__file__).parent.parent
_LOADED = (
    *("support.jobs_without_spark", "support.lake", "support.written_stores"),
    *("deltalake", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"),
    *("pandas", "pyarrow.pandas_compat"),  # with the first array
)


@cache
def fork_server() -> ForkServerContext:
    """Return a context whose processes have loaded what tests need, and begin in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_LOADED))
    search = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    forkserver._forkserver._stop()  # jobs that were tested before have started one without these modules
    with patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(search)}):
        ready = context.Process(target=int)
        ready.start()
    ready.join()  # the server has loaded all of it: tests measure how long a process takes
    return context


def members(session: int) -> list[int]:
    """Return the processes of a session, as ``start_new_session`` makes one, zombies left out."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            state, _, _, its_session = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()[:4]
        except (OSError, ValueError):
            continue  # no process, or it has just ended
        if its_session == str(session) and state not in "ZX":
            found.append(int(entry))
    return found
