"""Iceberg tables as targets of a backfill, by pyiceberg.

::

    LOCATION/data/segmentlog/JOB/ATTEMPT/day=…/NAME.parquet     files of tasks
    one commit: snapshot       the files; its summary has segmentlog.job and segmentlog.part
                properties     segmentlog.parts.JOB.2026-01     the ledger: the parts of a month
                               segmentlog.job.JOB               what the job is asked for

A commit names the snapshot that it was based on, so no other commit is between the look for the part and its files.
Snapshots expire or are rolled back, and the ledger stays: it says what to look for, and the current snapshot's files
say what is there.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from segmentlog.store import ConfigError, MissingExtraError, SegmentLogError

from .parquet_files import FILE_BYTES, DataFile, PartitionKey, TableLayout, check_columns, partition_keys
from .target import KEYS, Attempt, Attempts, Bounds, Job, LakeTarget, Row, first_line, month_of, pack, unpack

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import DataScan, Table

T = TypeVar("T")
_PREFIX: Final = "segmentlog"
_FORMAT_MAX: Final = 2
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
        self.name, self._columns, self.job = table, columns, job
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
        self.job_id = self.job.find(self.jobs(), self.name)
        data = self._table.properties.get("write.data.path", f"{self._table.location()}/data")
        self.attempts = Attempts(self._table.location(), data, self.job_id)
        self.clean()

    def close(self) -> None:
        """Close the catalog's connections."""
        if hasattr(self, "_catalog"):
            self._catalog.close()

    def refresh(self) -> None:
        self._table.refresh()

    def state(self) -> object:
        return self._table.metadata_location

    def jobs(self) -> Mapping[str, str]:
        return self._properties_of("job")

    def ledger(self) -> list[Row]:
        texts = self._properties_of(f"parts.{self.job_id}")
        return [row for month, text in texts.items() for row in unpack(text, f"ledger {month} of {self.name}")]

    def files(self, bounds: Bounds) -> Sequence[str]:
        return [each.file.file_path for each in self._scan(bounds).plan_files()]

    def keys(self, bounds: Bounds, reads: Callable[[str], bool]) -> pa.Table:
        from pyiceberg.io.pyarrow import ArrowScan

        scan = self._scan(bounds).select(*KEYS)
        tasks = [each for each in scan.plan_files() if reads(each.file.file_path)]
        return ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter).to_table(tasks)

    def columns(self) -> Sequence[str]:
        return [each for each in self._table.schema().column_names if each in self._columns.names]

    def commit(self, row: Row, rows: Sequence[Row], attempt: Attempt, files: Sequence[DataFile]) -> bool:
        table, job = self._table, self.job_id
        # pyiceberg itself would try again without looking for the part.
        # Drop when a transaction takes a number of tries, or a condition.
        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        month = month_of(row.part)
        kept = [each for each in rows if month_of(each.part) == month]
        transaction = table.transaction()
        properties = {f"{_PREFIX}.parts.{job}.{month}": pack([*kept, row]), f"{_PREFIX}.job.{job}": self.job.to_json()}
        transaction.set_properties(properties)
        paths = [f"{attempt.directory}/{each.path}" for each in files]
        summary = {f"{_PREFIX}.job": job, f"{_PREFIX}.part": row.to_json()}
        # The names are new. A search of all manifests for them would take longer with each part.
        transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
        transaction.commit_transaction()
        return True

    def _properties_of(self, kind: str) -> dict[str, str]:
        prefix = f"{_PREFIX}.{kind}."
        found = self._table.properties.items()
        return {name.removeprefix(prefix): text for name, text in found if name.startswith(prefix)}

    def _scan(self, bounds: Bounds) -> "DataScan":
        """Return a scan of rows within some bounds, or with a null there."""
        scan = self._table.scan()
        for name, values in bounds.items():
            low, high = (f"'{each.isoformat()}'" if isinstance(each, datetime) else each for each in values)
            scan = scan.filter(f"({name} >= {low} and {name} < {high}) or {name} is null")
        return scan

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
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        if (version := self._table.format_version) > _FORMAT_MAX:
            problem = f"{self.name} has version {version} of Iceberg's format, which pyiceberg does not write"
            raise ConfigError(problem, fix="Use a table of version 2")
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

    def layout(self) -> TableLayout:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        # Columns that are not written are left out of the files: readers see nulls, or the table's default.
        fields = [each for each in schema_to_pyarrow(self._table.schema()) if each.name in self._columns.names]
        return TableLayout(schema=pa.schema(fields), keys=self._keys(), file_bytes=self._file_bytes)


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


def _names(keys: Sequence[PartitionKey]) -> str:
    return ", ".join(f"{key.unit or 'value'} of {key.column}" for key in keys) or "none"
