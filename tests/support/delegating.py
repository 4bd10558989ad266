"""Base class of the fakes: every call goes to the real object, except for those that a subclass overrides."""

from types import ModuleType
from typing import Any

import pytest


class Delegating:
    """A stand-in for `inner`: a file system, a file, a clock, a module."""

    def __init__(self, inner: Any, **names: Any) -> None:
        self.inner = inner
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class FailingListings(Delegating):
    """A file system of pyarrow on which listings fail, as of a directory that appears meanwhile: `failures` of them."""

    failures = 1

    def get_file_info(self, selector: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise FileNotFoundError
        return self.inner.get_file_info(selector)


def patch_import(monkeypatch: pytest.MonkeyPatch, of: ModuleType, imported: str, **names: Any) -> None:
    """Let `of` alone see other `names` in the module that it imported as `imported`.

    ``monkeypatch.setattr(of.time, "sleep", …)`` would change ``time`` itself, for every thread of the process.
    """
    monkeypatch.setattr(of, imported, Delegating(getattr(of, imported), **names))
