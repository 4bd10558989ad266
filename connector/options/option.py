"""Options declared once: a dataclass field has the type, the default, the parser and the text of an option.

::

    class SourceOptions:
        tags: frozenset[str] | None = option("`A || B`, or `*`", _tags, "Read only …", default=None)
          │
          ▼
    Table.of(…, SourceOptions) ──► given names matched, unknown ones with a suggestion    (`matching`)
          │                   └──► docs/options.md                                        (`scripts/pages.py`)
          ▼
    SourceOptions(**given.values(table))     parsed, a typed field per option          (`read_options`, `write_options`)

Source, sink and metadata frames have a `OptionTable` each.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from segmentlog.query.suggestions import listing, suggest
from segmentlog.store import ConfigError, place_of

from ..errors import ConflictingOptionsError, UnknownOptionError
from . import values

T = TypeVar("T")

SWITCH: Final = "true, false"
COUNT: Final = "a number"
SIZE: Final = "a size"
NAMES: Final = "names"
_DECLARED: Final = "option"
STORAGE_PREFIX: Final = "storage."
STORAGE: Final = "storage.name"
SPARKS_OWN = frozenset(
    ["checkpointlocation", "owner", "provider", "location", "external", "is_managed_location", "comment", "collation"]
)
"""Options that Spark adds, for tables and streams (seen on 4.3)."""


class Mode(Enum):
    """The kinds of query that an option has a meaning for."""

    BATCH = "batch"
    STREAM = "stream"
    BOTH = "batch, stream"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Option(Generic[T]):
    """Declaration of an option. Names and aliases are read in any case.

    ``value``, ``default_text`` and ``meaning`` are for the documentation. ``parse`` takes the name, for its error, and
    the text. ``field`` is the field of the dataclass that declares the option.
    """

    name: str
    value: str
    parse: Callable[[str, str], T]
    default: T
    default_text: str | None = None
    meaning: str
    aliases: tuple[str, ...] = ()
    mode: Mode = Mode.BOTH
    field: str = ""


def option(
    value: str,
    parse: Callable[[str, str], T],
    meaning: str,
    *,
    default: T,
    name: str = "",
    shown: str | None = None,
    aliases: tuple[str, ...] = (),
    mode: Mode = Mode.BOTH,
) -> T:
    """Declare a dataclass field as an `Option`, named as the field in camel case unless ``name`` says otherwise."""
    declared = Option(
        name=name,
        value=value,
        parse=parse,
        default=default,
        default_text=shown,
        meaning=meaning,
        aliases=aliases,
        mode=mode,
    )
    made: T = field(default=default, metadata={_DECLARED: declared})
    return made


def switch(meaning: str, *, default: bool, name: str = "", aliases: tuple[str, ...] = ()) -> bool:
    """Declare a field as an `option` that is true or false."""
    return option(SWITCH, values.boolean, meaning, default=default, name=name, aliases=aliases)


class OptionTable:
    """The options of one use of the format, in the order of the documentation; errors name the use as ``whose``."""

    def __init__(self, whose: str, options: Iterable[Option[Any]] = ()) -> None:
        self.whose = whose
        self._options = list(options)

    @classmethod
    def of(cls, whose: str, declared: type[Any], *more: Option[Any]) -> "OptionTable":
        """Return the options that the fields of a dataclass declare, and more."""
        found = []
        for each in fields(declared):
            head, *rest = each.name.split("_")
            camel_case = head + "".join(map(str.capitalize, rest))
            made: Option[Any] = each.metadata[_DECLARED]
            found.append(replace(made, name=made.name or camel_case, field=each.name))
        return cls(whose, (*found, *more))

    def pick(self, *names: str) -> tuple[Option[Any], ...]:
        """Return some options, by their names without aliases."""
        known = {option.name: option for option in self}
        return tuple(known[name] for name in names)

    def __iter__(self) -> Iterator[Option[Any]]:
        return iter(self._options)

    def __contains__(self, option: Option[Any]) -> bool:
        return option in self._options

    def by_name(self) -> dict[str, Option[Any]]:
        """Map every name and alias, in lower case, to its option."""
        return {name.lower(): option for option in self for name in (option.name, *option.aliases)}

    def names(self) -> list[str]:
        """Return the names of the options, without aliases."""
        return [option.name for option in self]


class Given:
    """The options of one query, as texts by the options' own names, which are parsed when they are asked for."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def __contains__(self, option: Option[Any]) -> bool:
        return option.name in self._texts

    def __getitem__(self, option: Option[T]) -> T:
        """Return an option's value, or its default if it was not given; `ConfigError` for an impossible text."""
        raw = self._texts.get(option.name)
        return option.default if raw is None else option.parse(option.name, raw)

    def values(self, options: Iterable[Option[Any]]) -> dict[str, Any]:
        """Map the field of each option that was given to its value; errors as for one option."""
        return {option.field: self[option] for option in self.of(options) if option.field}

    def of(self, options: Iterable[Option[Any]]) -> list[Option[Any]]:
        """Return the given ones of some options, in their order."""
        return [option for option in options if option in self]

    def only(self, options: Iterable[Option[Any]]) -> "Given":
        """Return what was given of some options, without the rest."""
        return Given({option.name: self._texts[option.name] for option in self.of(options) if option.field})

    def also(self, option: Option[Any], text: str) -> "Given":
        """Return this with the text of one more option."""
        return Given({**self._texts, option.name: text})


STRICT_OPTIONS: Final = Option(
    name="strictOptions",
    value=SWITCH,
    parse=values.boolean,
    default=True,
    meaning="Whether an unknown option is an error, or a warning.",
)
"""The one option that every table has."""


# Matching of given names to a table

logger = logging.getLogger(__name__)


def match(given: Mapping[str, str], table: OptionTable, *, elsewhere: Sequence[OptionTable]) -> Given:
    """Match option texts, names in any case, to a table; the tables ``elsewhere`` are for the error.

    ::

        texts from Spark ── names ──► an option of the table       its own name, whatever its case and alias
          {name: text}                added by Spark               left out
                                      an option of another table   an error that names the other table
                                      none                         an error with a suggestion, or a warning

    Texts are parsed by `Given`; the callers check them against each other.

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


def _report_unknown(unknown: list[str], table: OptionTable, elsewhere: Sequence[OptionTable], *, strict: bool) -> None:
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
