"""Request: columns, properties and filter of a read, checked before anything is read.

::

    columns=["queueId", "body"]  properties=["region"]  ──► ScanSpec.columns, .property_columns
    tags="paid || refunded"  sql="amount > 100"         ──► ScanSpec.predicate

A scan, a look-up and a follower share these arguments.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from segmentlog.store import (
    DEFAULT_COLUMNS,
    NATIVE_SCHEMA,
    ConfigError,
    OnCorrupt,
    OnLoss,
    Predicate,
    ScanSpec,
    Tags,
    choice,
)

from .suggestions import listing, several_or_near

if TYPE_CHECKING:
    from segmentlog.store import Sql92Filter

    from .body_columns import BodyFormat

Names = str | Iterable[str]
EVERY_COLUMN: Final = "*"
"""All columns, where columns are named."""
_EVERY: Final = tuple(NATIVE_SCHEMA.names)


def scan_spec(
    *,
    columns: Names | None = None,
    properties: Names = (),
    tags: Names | None = None,
    sql: str | None = None,
    on_corrupt: OnCorrupt | str = OnCorrupt.FAIL,
    on_loss: OnLoss | str = OnLoss.FAIL,
    check_crc: bool = False,
) -> ScanSpec:
    """Check arguments of any type. `ConfigError` names the wrong one; `FilterSyntaxError` as of RocketMQ."""
    chosen = DEFAULT_COLUMNS if columns is None else every_column(checked_names("columns", columns))
    for name in chosen:
        if name not in _EVERY:
            known = f"The columns are {listing(_EVERY, most=30)}; `properties` names properties of messages"
            fix = several_or_near(name, _EVERY, "columns") + known
            raise ConfigError(f"columns: there is no column `{name}`", fix=fix)
    single = checked_names("properties", properties)
    every = [*chosen, *single]
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice:
        where = "columns and properties name" if single else "columns names"
        raise ConfigError(f"{where} {listing(twice)} twice", fix="Name it once")
    if not every:
        raise ConfigError("columns names no column", fix="Name at least one, such as queueOffset")
    return ScanSpec(
        columns=chosen,
        property_columns=single,
        predicate=Predicate(filter=_filter(tags, sql)),
        check_crc=check_crc,
        on_corrupt=choice("on_corrupt", on_corrupt, OnCorrupt),
        on_loss=choice("on_loss", on_loss, OnLoss),
    )


def every_column(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return all columns for ``*`` alone, and other names as they are."""
    return _EVERY if names == (EVERY_COLUMN,) else names


def checked_names(argument: str, value: object) -> tuple[str, ...]:
    """Return a name, or several, as a tuple; `ConfigError` names the argument."""
    names = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{argument}={value!r} is not a list of names", fix="Pass text, or a list of texts")
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{argument}={value!r} is not a text that UTF-8 can encode", fix="Pass it as it was sent"
        ) from None
    return names


def body_format_of(kind: object, schema: object, *, named: Callable[[str], str] = str) -> "BodyFormat | None":
    """Make a format of bodies, or None if there is no ``kind``; see `query.bodies.body_format`."""
    if kind is None and schema is None:
        return None
    from .bodies import KINDS, body_format  # noqa: PLC0415 - few reads parse bodies

    if kind is None:
        raise ConfigError(f"{named('schema')} needs {named('body_as')}", fix=f"Pass one of {listing(KINDS)}")
    return body_format(kind, schema, named=named)


def _filter(tags: Names | None, sql: object) -> "Tags | Sql92Filter | None":
    wanted = None if tags is None else _tags(tags)
    if sql is None:
        return None if wanted is None else Tags(wanted)
    if not isinstance(sql, str):
        raise ConfigError(
            f"sql={sql!r} is not text", fix="Pass a SQL92 filter such as \"amount > 100 AND region = 'eu'\""
        )
    from segmentlog.store import Sql92Filter  # noqa: PLC0415 - loads pyarrow.compute, and with it pandas if it is there

    compiled = Sql92Filter.compile(sql)
    return compiled if wanted is None else compiled.tagged(wanted)


def _tags(tags: Names) -> frozenset[str] | None:
    """Read tags; RocketMQ's ``A || B`` in one text, None for ``*``."""
    names = checked_names("tags", tags)
    if isinstance(tags, str):
        parsed = Tags.parse(tags)
        return None if parsed is None else parsed.any_of
    found = frozenset(name.strip() for name in names)
    if found == {"*"}:
        return None
    if not found or found & {"", "*"}:
        raise ConfigError(
            f"tags={tags!r} has an empty tag, or `*` beside others", fix="Pass 'A || B', ['A', 'B'] or '*'"
        )
    return found
