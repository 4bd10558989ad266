"""Which options were given: the texts that Spark hands over, sorted to the lines of a table of options.

::

    what Spark hands over ── names ──► an option of the table       its own name, whatever its case and alias
      {name: text}                     what Spark adds of its own   left out
                                       an option of another table   an error that says whose it is
                                       none                         an error with a suggestion, or a warning

Source and sink have a table each. What the texts mean is for `values`, what they mean together for their callers.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from segmentlog.store import ConfigError

from ..errors import ConflictingOptionsError, UnknownOptionError, listing, suggest
from .read_table import Option

logger = logging.getLogger(__name__)

SPARKS_OWN = frozenset(
    ["checkpointlocation", "owner", "provider", "location", "external", "is_managed_location", "comment", "collation"]
)
"""What Spark adds to the options, for tables and streams (seen on 4.3)."""

REMOVED = {
    "filterPushdown": "Leave it out: Spark then checks all filters, and every use of the DataFrame returns the right "
    "rows. To limit what is read, use assign, startingTimestamp, startingOffsets or tags. The old behaviour, which "
    "returns wrong rows when a DataFrame is used twice, is now `unsafeSingleUseFilterPushdown`",
}
"""Names that options once had, and what to do instead. An error even where unknown options are ignored."""

Table = Sequence[Option]


def folded_names(table: Table) -> dict[str, Option]:
    """Map every name and alias of a table's options, in lower case, to its option."""
    return {name.lower(): option for option in table for name in (option.name, *option.aliases)}


def by_option(given: Mapping[str, str], table: Table, *, elsewhere: Mapping[str, Table]) -> dict[str, str]:
    """Give every text its option's own name; refuse, or only report, those of no option.

    Parameters
    ----------
    given
        Option texts by name, names in any case.
    table
        The options that have a meaning here; ``strictOptions`` is one of them.
    elsewhere
        Tables of options that have none here, by whose they are: ``{"source": OPTIONS}``.

    Raises
    ------
    UnknownOptionError
        If an option is not of this table, unless ``strictOptions`` is false.
    ConflictingOptionsError
        If one option is given under two names.
    """
    known = folded_names(table)
    texts: dict[str, str] = {}
    spelled: dict[str, str] = {}
    unknown = []
    for name, raw in given.items():
        folded = name.lower()
        option = known.get(folded)
        for removed, fix in REMOVED.items():
            if folded == removed.lower():
                raise UnknownOptionError(f"option `{removed}` does not exist any more", fix=fix)
        if option is None:
            if folded not in SPARKS_OWN and not folded.startswith("option."):
                unknown.append(name)
        elif option.name in texts:
            raise conflict(spelled[option.name], name, "they are two names of one option")
        else:
            texts[option.name], spelled[option.name] = raw, name
    if unknown:
        strict = value_of(known["strictoptions"], texts)
        _report_unknown(unknown, table, elsewhere, strict=strict)
    return texts


def _report_unknown(unknown: list[str], table: Table, elsewhere: Mapping[str, Table], *, strict: bool) -> None:
    names = [option.name for option in table]
    theirs = {
        name: f"`{option.name}` is an option of the {whose}. "
        for whose, other in elsewhere.items()
        for name, option in folded_names(other).items()
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


def value_of(option: Option, texts: Mapping[str, str]) -> Any:
    """Read an option's text, or give its default where there is none."""
    raw = texts.get(option.name)
    return option.default if raw is None else option.parse(option.name, raw)


def conflict(one: str, other: str, why: str) -> ConflictingOptionsError:
    """Make the error for two options that exclude each other."""
    problem = f"options `{one}` and `{other}` exclude each other: {why}"
    return ConflictingOptionsError(problem, fix="Give one of them")


def local_path(path: str) -> str:
    """Make a path absolute; Spark writes a table's location as ``file:/…``.

    Raises
    ------
    ConfigError
        If it is the address of something that cannot be mapped.
    """
    scheme = urlsplit(path).scheme
    if scheme == "file":
        path = unquote(urlsplit(path).path)
    elif scheme and ":/" in path:
        fix = "Give a local directory; a store is read through memory maps, which need a file system that is mounted"
        raise ConfigError(f"option `path` is `{path}`, which is not a local directory", fix=fix)
    return os.path.abspath(os.path.expanduser(path))
