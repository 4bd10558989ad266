"""A module with other names in it, for one module under test alone.

``monkeypatch.setattr(stats.time, "sleep", …)`` changes ``time`` itself: every thread of the process sleeps that way,
and what was scripted for one caller is used up by another.
"""

from types import ModuleType
from typing import Any

import pytest


class _Patched:
    def __init__(self, module: ModuleType, names: dict[str, Any]) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def patch_import(monkeypatch: pytest.MonkeyPatch, of: ModuleType, imported: str, **names: Any) -> None:
    """Let `of` see other `names` in the module that it imported as `imported`; other modules see the real ones."""
    monkeypatch.setattr(of, imported, _Patched(getattr(of, imported), names))
