"""Seam of the file system: modules of the store outside ``store/files`` make no system calls on files.

::

    store/read, store/log, store/write, …  ──►  FileSystem, WritableFileSystem, …  ──►  os
                     │                                  store/files alone
                     └──► os.path.join, os.fspath, os.getpid, os.cpu_count: texts and numbers

What goes past the seam is out of reach for planted faults, and cannot be another file system. Why some modules
of ``store/files`` call the operating system themselves: docs/adr/0014-failed-system-calls.md.
"""

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
CALLERS: Final = {
    "cache_directory": "files outside of any store, which can be derived again",
    "fresh_directory": "a directory that no other process knows yet",
    "fs": "FileSystem, permissions of new files, statvfs",
    "lock_owner": "FileSystem.lock_owner",
    "os_errors": "limits of descriptors",
    "plain_files": "deletes relative to a descriptor",
    "plain_reads": "FileSystem, its loops over many files",
    "rocksdb": "a temporary directory of links, outside of any store",
    "store_lock": "the lock of a store",
    "writable_fs": "WritableFileSystem",
}
"""Modules of ``store/files`` that may call the operating system."""
APART: Final = {
    "store/ha/link.py": "certificates and keys",
    "store/maintenance/archives.py": "a directory that no other process knows yet",
    "store/objects/arrow_objects.py": "objects that are files: written aside, synced and linked",
    "store/objects/block_cache.py": "files of a cache outside of any store, which can be fetched again",
    "store/objects/obstore_objects.py": "texts of errors",
    "store/objects/opening.py": "environment variables",
}
"""Modules outside of ``store/files`` whose files are those of no store."""
HARMLESS: Final = {"os.cpu_count", "os.fspath", "os.getpid", "os.PathLike", "os.sep"}
PURE_PATHS: Final = {"join", "basename", "dirname", "abspath", "commonpath", "expanduser", "normpath", "split"}
SYSTEM: Final = {"ctypes", "fcntl", "glob", "io", "mmap", "pathlib", "resource", "shutil", "stat", "tempfile"}
"""Modules of Python that reach files without `os`."""


def system_calls(source: str) -> list[str]:
    """Return what a module takes from the operating system: attributes of `os`, imports, and the built-in `open`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in SYSTEM]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            root = node.module.partition(".")[0]
            found += names if root in SYSTEM else [name for name in names if root == "os" and name not in HARMLESS]
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            of, _, name = text.rpartition(".")
            if of == "os.path":
                found += [text] if name not in PURE_PATHS else []
            elif of == "os" and text != "os.path" and text not in HARMLESS:
                found.append(text)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            found.append("open")
    return found


def test_no_module_outside_files_calls_the_operating_system_on_files() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): calls
        for path in sorted((ROOT / "store").rglob("*.py"))
        if path.parent.name != "files"
        and path.relative_to(ROOT).as_posix() not in APART
        and (calls := system_calls(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_only_the_listed_modules_of_files_make_system_calls() -> None:
    calling = {path.stem for path in (ROOT / "store/files").glob("*.py") if system_calls(path.read_text())}
    assert calling == set(CALLERS)


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("import os\nos.stat('x')", ["os.stat"]),
        ("import os\nos.path.exists('x')", ["os.path.exists"]),
        ("import os\nos.path.join(os.fspath('x'), str(os.getpid()))", []),
        ("from os import unlink, getpid", ["os.unlink"]),
        ("from os.path import join", ["os.path.join"]),
        ("from pathlib import Path", ["pathlib.Path"]),
        ("import shutil", ["shutil"]),
        ("def f():\n    import mmap\n    return open('x')", ["mmap", "open"]),
        ("fs.open('x'); self.open('x')", []),
        ("from .os import stat", []),
    ],
)
def test_calls_are_found(source: str, calls: list[str]) -> None:
    assert system_calls(source) == calls
