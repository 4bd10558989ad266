"""Patterns of stores: a directory or URL with `*`, and the stores that it matches.

::

    s3://logs/*            folders of s3://logs              ──► s3://logs/broker-a  s3://logs/broker-b
    /data/*/store          directories of /data, with store  ──► /data/broker-a/store …
          └ name of the broker

A `*` is any text without a slash, or a part of one, and never a leading dot. Only folders are listed, not what they
contain: an archive costs as many requests as it has levels with a `*`, and one more.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from segmentlog.store import ConfigError, NotAStoreError, UnreadableError, is_remote

from .suggestions import listing

if TYPE_CHECKING:
    from segmentlog.store import RemoteAccess

S = TypeVar("S")
T = TypeVar("T")

_log = logging.getLogger(__name__)
_ANY: Final = "*"
_OF_STORES: Final = frozenset({"commitlog", "consumequeue", "manifests"})
"""Directories by which a store or an archive is known."""
_OF_ARCHIVES: Final = frozenset({"log", "queues", "files", "parts"})
"""Directories of an archive whose first push has not ended, or was interrupted."""
_SPECIAL: Final = re.compile(r"[%?#*]")
"""Characters that a URL has as %25 and so on."""
_THREADS: Final = 8


class Match(NamedTuple):
    """A store of a read; ``name`` is its broker's: the text of the parts with a `*`. None for its default."""

    path: str
    name: str | None


def is_pattern(place: str) -> bool:
    """Return whether a `place_of` is a pattern; a directory whose name has a `*` is not."""
    return _ANY in place and not (not is_remote(place) and os.path.lexists(place))


def stores_at(places: Sequence[str], access: "RemoteAccess") -> list[Match]:
    """Return the stores of some places, patterns among them; errors as of `matches`, or if two have the same name."""
    if not any(map(is_pattern, places)):
        return list(map(Match, places, _names(places)))
    found = [
        each
        for place in places
        for each in (
            matches(place, access) if is_pattern(place) else [Match(place, place.rstrip("/").rpartition("/")[2])]
        )
    ]
    paths = [path for path, _ in found]
    for kind, values in (("path", paths), ("name", [str(name) for _, name in found])):
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"two stores have the {kind} {twice}: {listing(paths)}",
                fix="Name each store once, or write one pattern whose parts with a * tell them apart",
            )
    return found


def _names(paths: Sequence[str]) -> Sequence[str | None]:
    """Name stores by the last part of their paths that tells all of them apart; one alone names itself.

    The directory of a store is often called ``store``, under one that is called after the broker.
    """
    if len(paths) == 1:
        return [None]
    for names in zip(*(reversed(path.split("/")) for path in paths), strict=False):
        if len(set(names)) == len(names):
            return names
    problem = f"no part of the paths tells these stores apart: {listing(paths)}"
    raise ConfigError(problem, fix="Name their brokers, in order, with brokerNames")


def matches(pattern: str, access: "RemoteAccess") -> list[Match]:
    """Return the stores that a pattern matches, by name.

    An archive without a manifest, whose first push has not ended, is left out with a warning.

    Raises
    ------
    NotAStoreError
        If nothing matches, or a match is neither a store nor an archive.
    ConfigError
        If the pattern has a `*` in the bucket.
    UnreadableError, StoreIOError
        If a directory cannot be listed.
    """
    root, parts = _split(pattern)
    found = sorted(_expanded(root, parts, (), access))
    contents = at_once(lambda each: frozenset(_folders(each.path, access)), found)
    strangers = [
        each.path for each, names in zip(found, contents, strict=True) if not names & (_OF_STORES | _OF_ARCHIVES)
    ]
    if strangers:
        problem = f"{listing(strangers)} {'is' if len(strangers) == 1 else 'are'} neither a store nor an archive"
        fix = "Write a pattern that matches stores alone, such as …/broker-*, or name the stores"
        raise NotAStoreError(f"{problem}, and the pattern matches", path=pattern, fix=fix)
    stores = [each for each, names in zip(found, contents, strict=True) if names & _OF_STORES]
    for each in found:
        if each not in stores:
            _log.warning("%s has no manifest yet, and is left out: its first push has not ended", each.path)
    if not stores:
        here = sorted(_folders(root, access))
        problem = "no store matches the pattern" if not found else "no archive of the pattern has a manifest yet"
        fix = f"Directories in {root or '/'}: {listing(here)}" if here else f"There are no directories in {root or '/'}"
        raise NotAStoreError(problem, path=pattern, fix=fix)
    return stores


def at_once(call: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return the results for some items; in object storage, each waits for a few requests."""
    if len(items) < 2:
        return [call(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(call, items))


def _split(pattern: str) -> tuple[str, list[str]]:
    """Return what is before the first part with a `*`, and the parts from there on."""
    scheme, separator, rest = pattern.rpartition("://")
    parts = rest.split("/")
    first = next(at for at, part in enumerate(parts) if _ANY in part)
    if separator and first == 0:
        raise ConfigError(
            f"`{pattern}` has a * in the name of the bucket", fix="Name the bucket: a * stands for a part of the prefix"
        )
    return f"{scheme}{separator}{'/'.join(parts[:first])}", parts[first:]


def _expanded(root: str, parts: Sequence[str], names: tuple[str, ...], access: "RemoteAccess") -> Iterator[Match]:
    part, *rest = parts
    literal = next((at for at, each in enumerate(rest) if _ANY in each), len(rest))
    between, rest = rest[:literal], rest[literal:]
    text = unquote(part) if is_remote(root) else part
    expression = re.compile(".*".join(map(re.escape, text.split(_ANY))), re.DOTALL)
    for folder in _folders(root, access):
        if expression.fullmatch(folder) is None or (folder.startswith(".") and not part.startswith(".")):
            continue
        written = _SPECIAL.sub(lambda found: quote(found[0], safe=""), folder) if is_remote(root) else folder
        path, found = "/".join((root, written, *between)), (*names, folder)
        if rest:
            yield from _expanded(path, rest, found, access)
        elif not between or (_folders(path, access) if is_remote(path) else os.path.isdir(path)):
            yield Match(path, "/".join(found))


def _folders(place: str, access: "RemoteAccess") -> Sequence[str]:
    """Return the names of the directories in a place; none if it does not exist."""
    if is_remote(place):
        return access.objects(place).folders()
    try:
        with os.scandir(place or "/") as entries:
            return [each.name for each in entries if each.is_dir()]
    except PermissionError as error:
        raise UnreadableError("the directory cannot be listed", path=place, fix="Grant read permission") from error
    except (FileNotFoundError, NotADirectoryError):
        return ()
