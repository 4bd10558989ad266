"""Lazy doors: the public names of a package are listed once, in its stub, and loaded one by one.

::

    store/__init__.pyi    from .write.message_store import MessageStore as MessageStore    the list; mypy reads it too
    store/__init__.py     __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
                                                  │
    user                  from segmentlog.store import MessageStore ──► imports store.write.message_store, then

A process of Spark's imports what it needs and nothing else: a task that reads does not load what writes.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec, resolve_name
from typing import Any, Final

_NONE: Final[Mapping[str, str]] = {}
_ENTRY: Final = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


def names_of(module: str) -> dict[str, str]:
    """Return the names that a door's stub lists, each with the absolute name of its home module.

    Parameters
    ----------
    module
        The door: a package or module with a ``.pyi`` beside it, in a directory or in an archive on ``sys.path``.
    """
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    loader: Any = spec.loader
    stub = loader.get_data(spec.origin.removesuffix(".py") + ".pyi").decode("utf-8")
    package = module if spec.submodule_search_locations is not None else module.rpartition(".")[0]
    return {name: resolve_name(home, package) for home, name in _ENTRY.findall(stub)}


def lazy_names(
    module: str,
    namespace: dict[str, Any],
    *,
    former: tuple[str, ...] = (),
    renamed: Mapping[str, str] = _NONE,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__all__``, ``__getattr__`` and ``__dir__`` of a door.

    Parameters
    ----------
    module
        The door's ``__name__``.
    namespace
        Its ``globals()``: names that were loaded are kept there.
    former
        Doors whose names were on this one once. They are still found here, with a `DeprecationWarning`.
    renamed
        Former names, each with the door and the name of today: ``"segmentlog.store.follow.Lag"``. They are still
        found, too, with the same warning.

    Returns
    -------
    (list of str, callable, callable)
        Thread-safe as imports are.
    """
    homes = names_of(module)

    def load(name: str) -> Any:
        if name in homes:
            namespace[name] = getattr(import_module(homes[name]), name)
            return namespace[name]
        if name in renamed:
            door, _, current = renamed[name].rpartition(".")
            text = f"{module}.{name} is renamed: import {current} from {door}"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(import_module(door), current)
        for door in () if name.startswith("_") else former:
            moved: Mapping[str, str] = names_of(door)
            if name in moved:
                text = f"{module}.{name} moved: import it from {door}"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                return getattr(import_module(moved[name]), name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted({*homes, *namespace})

    return list(homes), load, listed
