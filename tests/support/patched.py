"""A module with other names in it, for one module under test alone.

``monkeypatch.setattr(stats.time, "sleep", …)`` changes ``time`` itself: every thread of the process sleeps that way,
and what was scripted for one caller is used up by another.
"""

from types import ModuleType
from typing import Any

import pytest

from .delegating import Delegating


def patch_import(monkeypatch: pytest.MonkeyPatch, of: ModuleType, imported: str, **names: Any) -> None:
    """Let `of` see other `names` in the module that it imported as `imported`; other modules see the real ones."""
    monkeypatch.setattr(of, imported, Delegating(getattr(of, imported), **names))
