"""Reading needs nothing that Linux alone has: stores are read after everything else was taken away.

There is no Mac to try this on; the workflow of a release runs the same on one.
"""

import subprocess
import sys
from pathlib import Path

from segmentlog.command.verbs import set_up

WITHOUT_LINUX = """
import ctypes, fcntl, os, mmap, resource, sys

class NoLibrary:  # macOS has no fallocate and no syncfs
    def __init__(self, *_, **__): pass
    def __getattr__(self, name): raise AttributeError(name)

ctypes.CDLL = NoLibrary
for module, names in (
    (os, "sched_getaffinity posix_fallocate posix_fadvise fdatasync copy_file_range memfd_create O_TMPFILE O_PATH"),
    (fcntl, "F_OFD_SETLK F_OFD_GETLK F_OFD_SETLKW"),
    (mmap, "MADV_REMOVE MADV_HUGEPAGE MADV_DONTFORK"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

import segmentlog
store = segmentlog.open(sys.argv[1])
found = store.scan("TopicA").to_arrow()
assert found.num_rows == 248, found.num_rows

from segmentlog.command.main import main
from segmentlog.command.console import Console
for words in (["topics"], ["cat", "TopicA", "-n", "3", "--grep", "a"], ["stats"], ["verify"]):
    verb, *rest = words
    code = main([verb, sys.argv[1], *rest], Console.of_process())
    assert code in {0, 1}, (words, code)
print(found.num_rows)
"""


def test_stores_are_read_without_the_calls_of_linux(tmp_path: Path) -> None:
    store = set_up.unpack(set_up.ARCHIVES[0], str(tmp_path))
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_LINUX, store], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["248"]), ran.stderr
