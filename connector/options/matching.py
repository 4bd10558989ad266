"""Matching of given option names to a table of options.

::

    texts from Spark ── names ──► an option of the table       its own name, whatever its case and alias
      {name: text}                added by Spark               left out
                                  an option of another table   an error that names the other table
                                  none                         an error with a suggestion, or a warning

Texts are parsed by `Given`; the callers check them against each other.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from segmentlog.query.suggestions import listing, suggest
from segmentlog.store import ConfigError, place_of

from ..errors import ConflictingOptionsError, UnknownOptionError
from .option import STRICT_OPTIONS, Given, Table

logger = logging.getLogger(__name__)

STORAGE_PREFIX: Final = "storage."
STORAGE: Final = "storage.name"
SPARKS_OWN = frozenset(
    ["checkpointlocation", "owner", "provider", "location", "external", "is_managed_location", "comment", "collation"]
)
"""Options that Spark adds, for tables and streams (seen on 4.3)."""


def match(given: Mapping[str, str], table: Table, *, elsewhere: Sequence[Table]) -> Given:
    """Match option texts, names in any case, to a table; the tables ``elsewhere`` are for the error.

    `UnknownOptionError` unless ``strictOptions`` is false, `ConflictingOptionsError` for one option under two names.
    """
    known = table.by_name()
    texts: dict[str, str] = {}
    spelled: dict[str, str] = {}
    unknown = []
    storage: dict[str, str] = {}
    for name, raw in given.items():
        folded = name.lower()
        if folded.startswith(STORAGE_PREFIX) and STORAGE in known:
            storage[name[len(STORAGE_PREFIX) :]] = raw
            continue
        option = known.get(folded)
        if option is None:
            if folded not in SPARKS_OWN and not folded.startswith("option."):
                unknown.append(name)
        elif option.name in texts:
            raise conflict(spelled[option.name], name, "they are two names of one option")
        else:
            texts[option.name], spelled[option.name] = raw, name
    if storage:
        texts[known[STORAGE].name] = json.dumps(storage)
    found = Given(texts)
    if unknown:
        _report_unknown(unknown, table, elsewhere, strict=found[STRICT_OPTIONS])
    return found


def _report_unknown(unknown: list[str], table: Table, elsewhere: Sequence[Table], *, strict: bool) -> None:
    names = table.names()
    theirs = {
        name: f"`{option.name}` is an option of the {other.whose}. "
        for other in elsewhere
        for name, option in other.by_name().items()
    }
    strangers = "".join(theirs.get(name.lower(), "") for name in unknown)
    near = {name: suggest(name, names) for name in unknown if name.lower() not in theirs}
    what = listing(unknown)
    hints = ", ".join(f"`{meant}` for `{name}`" for name, meant in near.items() if meant)
    did_you_mean = strangers + (f"Did you mean {hints}? " if hints else "")
    problem = f"unknown option {what}" if len(unknown) == 1 else f"unknown options {what}"
    if not strict:
        logger.warning("%s: ignored, because strictOptions is false. %s", problem, did_you_mean)
        return
    known = ", ".join(names)
    raise UnknownOptionError(problem, fix=f"{did_you_mean}The options are {known}; strictOptions=false ignores others")


def conflict(one: str, other: str, why: str) -> ConflictingOptionsError:
    """Make the error for two options that exclude each other."""
    problem = f"options `{one}` and `{other}` exclude each other: {why}"
    return ConflictingOptionsError(problem, fix="Keep one of them")


def local_path(path: str) -> str:
    """Make a path absolute; Spark writes a table's location as ``file:/…``. URLs of object stores stay as they are."""
    try:
        return place_of(path)
    except ConfigError as error:
        raise ConfigError(f"option `path`: {error.problem}", fix=error.fix) from None
