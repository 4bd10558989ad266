"""Lazy doors: the public names of a package are listed once, in its stub, and loaded one by one.

::

    store/__init__.pyi    from .write.message_store import MessageStore as MessageStore    the list; mypy reads it too
    store/__init__.py     __all__, __getattr__, __dir__ = lazy_names(__name__, globals())
                                                  │
    user                  from segmentlog.store import MessageStore ──► imports store.write.message_store, then

A process of Spark's imports what it needs and nothing else: a task that reads does not load what writes.
"""

import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec, resolve_name
from typing import Any, Final

_ENTRY: Final = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


def names_of(module: str) -> dict[str, str]:
    """Return the names that a door's stub lists, each with the absolute name of its home module."""
    # The door is a module with a `.pyi` beside it, in a directory or in an archive on `sys.path`. The home of another
    # door is the package that it is in.
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    loader: Any = spec.loader
    stub = loader.get_data(spec.origin.removesuffix(".py") + ".pyi").decode("utf-8")
    package = module if spec.submodule_search_locations is not None else module.rpartition(".")[0]
    return {name: resolve_name(home, package) for home, name in _ENTRY.findall(stub)}


def lazy_names(
    module: str, namespace: dict[str, Any]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__all__``, ``__getattr__`` and ``__dir__`` of a door from its ``__name__`` and ``globals()``."""
    # Names that were loaded are kept in the namespace. Thread-safe as imports are.
    homes = names_of(module)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = homes[name]
        namespace[name] = import_module(f"{home}.{name}") if home == module else getattr(import_module(home), name)
        return namespace[name]

    def listed() -> list[str]:
        return sorted({*homes, *(name for name in namespace if name.startswith("__"))})

    return list(homes), load, listed
