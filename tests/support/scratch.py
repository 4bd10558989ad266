"""Folders of tests in memory: tests make and remove hundreds of thousands of files, and a disk journals each call.

::

    tmp_path, tmp_path_factory ──► /dev/shm      if the machine has the memory to spare, and programs may run there
                               └─► $TMPDIR       else; and whatever the caller has set stays
"""

import os
import re
from pathlib import Path

_MEMORY = Path("/dev/shm")
_SPARE_BYTES = 8 << 30
"""For stores of four tests at a time, beside two JVMs."""
_ROOT = "PYTEST_DEBUG_TEMPROOT"
"""pytest's own variable for the folder of its folders."""


def prefer_memory() -> None:
    """Let pytest make its folders in memory, here and in the processes of this run."""
    if _ROOT in os.environ or "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return
    found = os.statvfs(_MEMORY)
    available = re.search(r"MemAvailable: +([0-9]+) kB", Path("/proc/meminfo").read_text())
    spare = min(found.f_bavail * found.f_frsize, int(available[1]) << 10 if available else 0)
    if spare >= _SPARE_BYTES and not found.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK):
        os.environ[_ROOT] = str(_MEMORY)
