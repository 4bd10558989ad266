"""Base class of the fakes: every call goes to the real object, except for those that a subclass overrides."""

from typing import Any


class Delegating:
    """A stand-in for `inner`: a file system, a file, a clock, a module."""

    def __init__(self, inner: Any, **names: Any) -> None:
        self.inner = inner
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
