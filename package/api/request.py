"""Requests: the store, the columns and the filter, checked before anything is read.

::

    columns=["queueId", "body"]  properties=["region"]  ──► ScanSpec.columns, .property_columns
    tags="paid || refunded"  sql="amount > 100"         ──► ScanSpec.predicate

A scan, a look-up and a follower share these arguments.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from segmentlog.store import (
    NATIVE_SCHEMA,
    ConfigError,
    OnCorrupt,
    OnLoss,
    Predicate,
    ReadFrom,
    ScanSpec,
    StoreReader,
    Tags,
    choice,
)
from segmentlog.suggestions import did_you_mean, listing

if TYPE_CHECKING:
    from segmentlog.store import Sql92Filter

Names = str | Iterable[str]
PathLike = str | os.PathLike[str]
_EVERY: Final = tuple(NATIVE_SCHEMA.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A store, as it is opened again for each use and each thread. Immutable.

    Attributes
    ----------
    path, commit_log_paths, broker_name, archive, read_from
        As of `StoreReader.open`.
    """

    path: str
    commit_log_paths: tuple[str, ...] = ()
    broker_name: str | None = None
    archive: str | None = None
    read_from: ReadFrom = ReadFrom.APPENDED

    @classmethod
    def of(
        cls, path: object, commit_log_paths: object, broker_name: object, archive: object, read_from: object
    ) -> Self:
        """Check the arguments of ``segmentlog.open``.

        Raises
        ------
        ConfigError
            If one of them has a wrong type.
        """
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"path={path!r} is no path", fix="Pass the store directory")
        if not isinstance(commit_log_paths, list | tuple):
            raise ConfigError(f"commit_log_paths={commit_log_paths!r} is no list of paths", fix="Pass a list of paths")
        if broker_name is not None and not isinstance(broker_name, str):
            raise ConfigError(f"broker_name={broker_name!r} is no text", fix="Pass the broker's name")
        if archive is not None and not isinstance(archive, str | os.PathLike):
            raise ConfigError(f"archive={archive!r} is no path", fix="Pass the directory of the archive")
        return cls(
            path=full_path(path),
            commit_log_paths=tuple(os.path.expanduser(each) for each in commit_log_paths),
            broker_name=broker_name,
            archive=None if archive is None else full_path(archive),
            read_from=choice("read_from", read_from, ReadFrom),
        )

    def reader(self) -> StoreReader:
        """Open the store, as it is now."""
        return StoreReader.open(
            self.path,
            commit_log_paths=self.commit_log_paths,
            broker_name=self.broker_name,
            archive=self.archive,
            read_from=self.read_from,
        )


def full_path(path: PathLike) -> str:
    """Return the absolute path; ``~`` is the home directory."""
    return os.path.abspath(os.path.expanduser(path))


def scan_spec(
    *,
    columns: Names | None,
    properties: Names,
    tags: Names | None = None,
    sql: str | None = None,
    on_corrupt: OnCorrupt | str,
    on_loss: OnLoss | str,
) -> ScanSpec:
    """Check the arguments that say what is read of which messages.

    Raises
    ------
    ConfigError
        If a column does not exist or is named twice, or an argument has another type.
    FilterSyntaxError
        If RocketMQ refuses the SQL92 filter.
    """
    chosen = _EVERY if columns is None else _names("columns", columns)
    for name in chosen:
        if name not in _EVERY:
            fix = f"{did_you_mean(name, _EVERY)}The columns are {listing(_EVERY, most=30)}; properties=… takes others"
            raise ConfigError(f"columns: there is no column `{name}`", fix=fix)
    single = _names("properties", properties)
    every = [*chosen, *single]
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice:
        raise ConfigError(f"columns and properties name {listing(twice)} twice", fix="Leave one of them out")
    if not every:
        raise ConfigError("columns names no column", fix="Name at least one, such as queueOffset")
    predicate = Predicate(filter=_filter(tags, sql))
    return ScanSpec(
        columns=chosen,
        property_columns=single,
        predicate=predicate,
        on_corrupt=choice("on_corrupt", on_corrupt, OnCorrupt),
        on_loss=choice("on_loss", on_loss, OnLoss),
    )


def _names(argument: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    names = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{argument}={value!r} is no list of names", fix="Pass text, or a list of texts")
    return names


def _filter(tags: Names | None, sql: object) -> "Tags | Sql92Filter | None":
    wanted = None if tags is None else _tags(tags)
    if sql is None:
        return None if wanted is None else Tags(wanted)
    if not isinstance(sql, str):
        raise ConfigError(
            f"sql={sql!r} is no text", fix="Pass a SQL92 filter such as \"amount > 100 AND region = 'eu'\""
        )
    from segmentlog.store import Sql92Filter  # noqa: PLC0415 - loads pyarrow.compute, and with it pandas if it is there

    compiled = Sql92Filter.compile(sql)
    return compiled if wanted is None else compiled.tagged(wanted)


def _tags(tags: Names) -> frozenset[str] | None:
    """Read tags; RocketMQ's ``A || B`` in one text, None for ``*``."""
    if isinstance(tags, str):
        parsed = Tags.parse(tags)
        return None if parsed is None else parsed.any_of
    found = frozenset(name.strip() for name in _names("tags", tags))
    if found == {"*"}:
        return None
    if not found or found & {"", "*"}:
        raise ConfigError(
            f"tags={tags!r} has an empty tag, or `*` beside others", fix="Pass 'A || B', ['A', 'B'] or '*'"
        )
    return found
