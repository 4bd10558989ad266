"""Iceberg tables as targets of a backfill, by pyiceberg.

::

    LOCATION/data/segmentlog/ATTEMPT/day=…/NAME.parquet     files of tasks
    one commit: snapshot       the files; its summary has segmentlog.job and segmentlog.part
                properties     segmentlog.parts.JOB.2026-01     the ledger: the parts of a month
                               segmentlog.job.JOB               what the job is asked for

A commit names the snapshot that it was based on, so no other commit is between the look for the part and its files.
Snapshots expire, and the ledger stays. After a rollback, parts whose snapshots are no longer in the table's history are
missing again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from segmentlog.store import ConfigError, MissingExtraError, SegmentLogError

from .parquet_files import FILE_BYTES, DataFile, Layout, PartitionKey, check_columns, partition_keys
from .target import Attempt, Attempts, Job, LakeTarget, PartKey, Row, first_line, month_of, pack, unpack

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

T = TypeVar("T")
_PREFIX: Final = "segmentlog"
_SETTLED_S: Final = 600
_UNITS: Final = {"DayTransform": "day", "HourTransform": "hour", "MonthTransform": "month", "YearTransform": "year"}


class IcebergTarget(LakeTarget):
    """Table of an Iceberg catalog.

    Parameters
    ----------
    table
        ``NAMESPACE.TABLE``; created with its namespace if it is missing.
    columns
        Of the frames that are written.
    catalog
        Name of a catalog in pyiceberg's configuration; None for its default.
    properties
        Properties of the catalog, over those of the configuration.
    job
        The parts of other jobs in the table are left alone.
    partition_by
        ``day``, ``hour``, ``topic``, ``queue`` or columns; None for those of an existing table, and days for a new one.
    file_bytes
        Size at which a file ends.
    """

    def __init__(
        self,
        table: str,
        columns: pa.Schema,
        job: Job,
        *,
        catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
        partition_by: Sequence[str] | None = None,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.name, self._columns, self._job = table, columns, job
        self._catalog_name, self._properties = catalog, dict(properties or {})
        self._partition_by, self._file_bytes = partition_by, file_bytes
        self._catalog: Catalog
        self._table: Table

    def open(self) -> None:
        """Create the table or check it, and remove files of killed runs."""
        if self.name.count(".") < 1 or not all(self.name.split(".")):
            raise ConfigError(f"table {self.name!r} has no namespace", fix="Name it as NAMESPACE.TABLE")
        self._catalog = open_catalog(self._catalog_name, self._properties)
        from pyiceberg.exceptions import CommitFailedException  # the catalog's opening says what is missing

        self.conflicts = (CommitFailedException,)
        self._table = self._load_or_create()
        self.check()
        prefix, properties = f"{_PREFIX}.job.", self._table.properties
        others = {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}
        self._job.check(others, self.name)
        data = properties.get("write.data.path", f"{self._table.location()}/data")
        self.attempts = Attempts(self._table.location(), data, self._job.id)
        # A SQL catalog has decided on a commit when its process is gone; a server may still have a request to do.
        settled_s = 0 if type(self._catalog).__name__ == "SqlCatalog" else _SETTLED_S
        self.attempts.clean(self._attempt_names, settled_s)

    def close(self) -> None:
        """Close the catalog's connections."""
        if hasattr(self, "_catalog"):
            self._catalog.close()

    def refresh(self) -> None:
        self._table.refresh()

    def held(self) -> dict[PartKey, Row]:
        return held(self._table, self._job.id)

    def commit(self, row: Row, rows: Mapping[PartKey, Row], attempt: Attempt, files: Sequence[DataFile]) -> None:
        table, job = self._table, self._job.id
        # pyiceberg itself would try again without looking for the part.
        # Drop when a transaction takes a number of tries, or a condition.
        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        month = month_of(row.part)
        kept = [each for each in rows.values() if month_of(each.part) == month]
        transaction = table.transaction()
        properties = {f"{_PREFIX}.parts.{job}.{month}": pack([*kept, row]), f"{_PREFIX}.job.{job}": self._job.to_json()}
        transaction.set_properties(properties)
        paths = [f"{attempt.directory}/{each.path}" for each in files]
        summary = {f"{_PREFIX}.job": job, f"{_PREFIX}.part": row.to_json()}
        # The names are new. A search of all manifests for them would take longer with each part.
        transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
        transaction.commit_transaction()

    def _attempt_names(self) -> set[str]:
        self._table.refresh()
        return {row.attempt for row in ledger(self._table, self._job.id)}

    def _load_or_create(self) -> "Table":
        try:
            return _again(self._load_or_create_once)
        except SegmentLogError:
            raise
        except Exception as error:
            problem = f"table {self.name} of the catalog cannot be opened or created: {first_line(error)}"
            raise ConfigError(problem, fix="Check the catalog's properties and its warehouse") from error

    def _load_or_create_once(self) -> "Table":
        if not self._catalog.table_exists(self.name):
            # By itself, too: another job may be first with the namespace, and then with the table.
            _again(partial(self._catalog.create_namespace_if_not_exists, self.name.rsplit(".", 1)[0]))
            self._create()
        return self._catalog.load_table(self.name)

    def _create(self) -> None:
        from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform

        transforms: dict[str | None, Transform[Any, Any]] = {
            "day": DayTransform(), "hour": HourTransform(), None: IdentityTransform()
        }  # fmt: skip
        keys = partition_keys(("day",) if self._partition_by is None else self._partition_by, self._columns)
        with (
            self._catalog.create_table_transaction(self.name, self._columns) as transaction,
            transaction.update_spec() as spec,
        ):
            for key in keys:
                spec.add_field(key.column, transforms[key.unit], key.name)

    def check(self) -> None:
        """Raise `ConfigError` if frames do not fit into the table."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        check_columns(self._columns, schema_to_pyarrow(self._table.schema()), self.name)
        keys = self._keys()
        if self._partition_by is None:
            return
        asked = partition_keys(self._partition_by, self._columns)
        if [key[1:3] for key in keys] != [key[1:3] for key in asked]:
            problem = f"{self.name} has other partitions: {_names(keys)}, not {_names(asked)}"
            raise ConfigError(problem, fix="Leave out the partitions, or use another table")

    def _keys(self) -> tuple[PartitionKey, ...]:
        """Return the keys of the table's current partition spec."""
        found = []
        for field in self._table.spec().fields:
            column = self._table.schema().find_column_name(field.source_id) or ""
            kind = type(field.transform).__name__
            if kind == "VoidTransform":
                continue
            if kind not in {"IdentityTransform", *_UNITS} or column not in self._columns.names:
                problem = f"{self.name} is partitioned by {field.transform} of the column `{column}`"
                fix = "Use a table with partitions by hour, day, month, year, or values of columns that are written"
                raise ConfigError(problem, fix=fix)
            found.append(PartitionKey(field.name, column, _UNITS.get(kind)))
        return tuple(found)

    def layout(self) -> Layout:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        # Columns that are not written are left out of the files: readers see nulls, or the table's default.
        fields = [each for each in schema_to_pyarrow(self._table.schema()) if each.name in self._columns.names]
        return Layout(schema=pa.schema(fields), keys=self._keys(), file_bytes=self._file_bytes)


def open_catalog(name: str | None, properties: Mapping[str, str]) -> "Catalog":
    """Return a catalog of pyiceberg's configuration; `ConfigError` if it has none of this name, or cannot open it."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        problem = "Iceberg tables need the package pyiceberg, which is not installed"
        raise MissingExtraError(problem, fix="pip install 'segmentlog[iceberg]'") from error

    def opened() -> "Catalog":
        found = load_catalog(name, **properties)
        found.list_namespaces()
        return found

    try:
        return _again(opened)
    except Exception as error:
        problem = f"catalog {name or 'default'} cannot be opened: {first_line(error)}"
        fix = "Describe it in .pyiceberg.yaml, or with properties such as type=sql, uri=…, warehouse=…"
        raise ConfigError(problem, fix=fix) from error


def _again(work: Callable[[], T]) -> T:
    """Return the result of some work, tried twice: of two jobs that create a catalog or a table at once, one fails."""
    try:
        return work()
    except Exception:  # noqa: BLE001 - each kind of catalog has its own errors
        time.sleep(0.2)
        return work()


def ledger(table: "Table", job: str) -> list[Row]:
    """Return the rows of a job that a table's properties have, those of snapshots that were rolled back included."""
    prefix = f"{_PREFIX}.parts.{job}."
    texts = {name: text for name, text in table.properties.items() if name.startswith(prefix)}
    return [row for name, text in texts.items() for row in unpack(text, f"property {name} of {'.'.join(table.name())}")]


def held(table: "Table", job: str) -> dict[PartKey, Row]:
    """Return the parts of a job that the current snapshot of a table has."""
    found = {row.attempt: row for row in ledger(table, job)}
    known = {each.snapshot_id: each for each in table.snapshots()}
    lineage = set()
    current = table.current_snapshot()
    while current is not None:
        lineage.add(current.snapshot_id)
        current = known.get(current.parent_snapshot_id) if current.parent_snapshot_id is not None else None
    for number, snapshot in known.items():
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if number not in lineage and summary.get(f"{_PREFIX}.job") == job:
            row = Row.from_json(summary[f"{_PREFIX}.part"], f"snapshot {number} of {'.'.join(table.name())}")
            found.pop(row.attempt, None)
    return {row.key: row for row in found.values()}


def _names(keys: Sequence[PartitionKey]) -> str:
    return ", ".join(f"{key.unit or 'value'} of {key.column}" for key in keys) or "none"
