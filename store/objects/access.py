"""Access to object stores as plain values, which cross to threads and workers: each process makes its own client.

::

    options, arguments, flags ──► RemoteAccess ── pickled ──► objects(url) ──► ObjectStore, made where it is used
                                                         └──► cache() ───────► BlockCache, one per process
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from .object_store import ObjectStore

if TYPE_CHECKING:
    from .block_cache import BlockCache

NO_CACHE: Final = "none"


class StorageOptions(dict[str, str]):
    """Options of an object store by name; values are credentials, and never shown."""

    @classmethod
    def of_session(cls, settings: Mapping[str, str]) -> Self:
        """Return those of Hadoop's settings that have a meaning here, as options that others win over."""
        from .options import SESSION, is_hadoop_setting  # noqa: PLC0415 - as in `objects`

        names = {name.lower().removeprefix(SESSION): value for name, value in settings.items()}
        names |= {name.lower(): value for name, value in settings.items()}  # Spark takes these where it has both
        return cls((f"{SESSION}{name}", value) for name, value in sorted(names.items()) if is_hadoop_setting(name))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name}=…" for name in sorted(self)) + "}"

    __str__ = __repr__

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAccess:
    """Options of the object store, and the cache on the local disk."""

    storage: StorageOptions = field(default_factory=StorageOptions)
    cache_dir: str | None = None
    """Directory of cached blocks, `NO_CACHE`, or None for the cache of the user."""
    cache_bytes: int | None = None
    """Size of the cache; None for a part of the disk."""

    @classmethod
    def of(
        cls, storage: Mapping[str, str] | None, cache_dir: str | None = None, cache_bytes: int | None = None
    ) -> Self:
        """Return the access of a caller's mapping."""
        return cls(storage=StorageOptions(storage or {}), cache_dir=cache_dir, cache_bytes=cache_bytes)

    def objects(self, url: str) -> ObjectStore:
        """Open the object store at a URL, without a request."""
        from .opening import open_objects  # noqa: PLC0415 - readers of a directory need not wait for it

        return open_objects(url, self.storage)

    def cache(self) -> "BlockCache | None":
        """Return the cache of this process; None if there is to be none."""
        return None if self.cache_dir == NO_CACHE else _cache(self.cache_dir, self.cache_bytes)


@cache
def _cache(directory: str | None, limit: int | None) -> "BlockCache":
    from .block_cache import BlockCache  # noqa: PLC0415 - as in `RemoteAccess.objects`

    return BlockCache(directory, limit)
