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

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from segmentlog.query.iceberg_ledger import PREFIX, IcebergLedger, again
from segmentlog.query.ledgers import first_line
from segmentlog.query.parts import Row, month_of, pack
from segmentlog.store import ConfigError, SegmentLogError

from .parquet_files import FILE_BYTES, DataFile, PartitionKey, TableLayout, check_columns, partition_keys
from .target import Attempt, Attempts, Job, LakeTarget

if TYPE_CHECKING:
    from pyiceberg.table import Table

_FORMAT_MAX: Final = 2
_UNITS: Final = {"DayTransform": "day", "HourTransform": "hour", "MonthTransform": "month", "YearTransform": "year"}


class IcebergTarget(IcebergLedger, LakeTarget):
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
        super().__init__(table, catalog=catalog, properties=properties)
        self._columns, self.job = columns, job
        self._partition_by, self._file_bytes = partition_by, file_bytes

    def columns(self) -> Sequence[str]:
        return [each for each in super().columns() if each in self._columns.names]

    def open(self) -> None:
        """Create the table or check it, and remove files of killed runs."""
        self.connect()
        from pyiceberg.exceptions import CommitFailedException  # the catalog's opening says what is missing

        self.conflicts = (CommitFailedException,)
        self._table = self._load_or_create()
        self.check()
        self.job_id = self.job.find(self.jobs(), self.name)
        data = self._table.properties.get("write.data.path", f"{self._table.location()}/data")
        self.attempts = Attempts(self._table.location(), data, self.job_id)
        self.clean()

    def commit(self, row: Row, rows: Sequence[Row], attempt: Attempt, files: Sequence[DataFile]) -> bool:
        table, job = self._table, self.job_id
        # pyiceberg itself would try again without looking for the part.
        # Drop when a transaction takes a number of tries, or a condition.
        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        month = month_of(row.part)
        kept = [each for each in rows if month_of(each.part) == month]
        transaction = table.transaction()
        properties = {f"{PREFIX}.parts.{job}.{month}": pack([*kept, row]), f"{PREFIX}.job.{job}": self.job.to_json()}
        transaction.set_properties(properties)
        paths = [f"{attempt.directory}/{each.path}" for each in files]
        summary = {f"{PREFIX}.job": job, f"{PREFIX}.part": row.to_json()}
        # The names are new. A search of all manifests for them would take longer with each part.
        transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
        transaction.commit_transaction()
        return True

    def _load_or_create(self) -> "Table":
        try:
            return again(self._load_or_create_once)
        except SegmentLogError:
            raise
        except Exception as error:
            problem = f"table {self.name} of the catalog cannot be opened or created: {first_line(error)}"
            raise ConfigError(problem, fix="Check the catalog's properties and its warehouse") from error

    def _load_or_create_once(self) -> "Table":
        if not self._catalog.table_exists(self.name):
            # By itself, too: another job may be first with the namespace, and then with the table.
            again(partial(self._catalog.create_namespace_if_not_exists, self.name.rsplit(".", 1)[0]))
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


def _names(keys: Sequence[PartitionKey]) -> str:
    return ", ".join(f"{key.unit or 'value'} of {key.column}" for key in keys) or "none"
