"""Delta tables as targets of a backfill, by deltalake.

::

    TABLE/segmentlog/JOB/ATTEMPT/day=…/NAME.parquet     files of tasks
    TABLE/_delta_log/N.json                         one commit: the files; custom metadata segmentlogPart;
                                                    transaction segmentlog-JOB, version + 1
    TABLE/_segmentlog/JOB.ledger                    parts, copied from the commits, which the log forgets
    TABLE/_segmentlog/JOB.json                      what the job is asked for

Two commits of one job conflict by their application transaction, so no part is added between the look for it and its
commit. The transaction's version counts the parts. It outlives the commits, so a ledger that lacks one is noticed.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from segmentlog.query.delta_ledger import JOB, PART, DeltaLedger
from segmentlog.query.ledgers import TIME, first_line, listed
from segmentlog.query.parts import Row, pack
from segmentlog.store import ConfigError

from .parquet_files import FILE_BYTES, DataFile, PartitionKey, TableLayout, check_columns, partition_keys
from .target import Attempt, Attempts, Job, LakeTarget

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG: Final = "_delta_log"
_PERIODS: Final = {
    "day": (PartitionKey("day", TIME, "day"), pa.date32()),
    "hour": (PartitionKey("hour", TIME, "hour of day"), pa.int32()),
}
"""Columns of the table: Delta has no partitions by a function of a column."""
_CHECK: Final = "delta.constraints."
_MAPPING: Final = "delta.columnMapping.mode"
_DEFAULT: Final = "CURRENT_DEFAULT"
_IDENTITY_VERSION: Final = 6
_COLUMN_RULES: Final = {
    "delta.invariants": "the invariant",
    "delta.generationExpression": "the expression",
    "delta.identity.": "the identity",
}
_FEATURES: Final = frozenset(
    {
        *("appendOnly", "changeDataFeed", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"),
        *("variantType", "checkConstraints", "generatedColumns", "invariants"),
    }
)
"""Writer features that ask nothing of a commit that only adds files, or that are checked above, and that deltalake
commits."""


class DeltaTarget(DeltaLedger, LakeTarget):
    """Table of Delta Lake.

    Parameters
    ----------
    table
        Path or URI of the table; created if it is missing.
    columns
        Of the frames that are written.
    job
        The parts of other jobs in the table are left alone.
    partition_by
        ``day``, ``hour``, ``topic``, ``queue`` or columns; None for those of an existing table, and days for a new
        one. ``day`` and ``hour`` are columns of the table, a date and an hour of the day in UTC; ``hour`` brings
        ``day``.
    file_bytes
        Size at which a file ends.
    storage_options
        Options of deltalake for object stores.
    """

    def __init__(
        self,
        table: str,
        columns: pa.Schema,
        job: Job,
        *,
        partition_by: Sequence[str] | None = None,
        file_bytes: int = FILE_BYTES,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(table, storage_options)
        job.store.check_target(self.name)
        self._columns, self.job = columns, job
        self._file_bytes = file_bytes
        self._keys = None if partition_by is None else _keys_of(partition_by, columns)

    def open(self) -> None:
        """Create the table or check it, and remove files of killed runs."""
        self.connect()
        self._load_or_create()
        self.check()
        self._enter()
        self.attempts = Attempts(self.name, self.name, self.job_id)
        if rows := self.ledger():
            self._save(rows)
        self.clean()

    def check(self) -> None:
        check_rules(self._table, self._columns.names, self.name)
        table = pa.schema(self._table.schema())
        added = [pa.field(key.name, _PERIODS[key.name][1]) for key in self._keys or () if key.unit is not None]
        check_columns(pa.schema([*self._columns, *added]), table, self.name)
        partitions = self._table.metadata().partition_columns
        if self._keys is not None and partitions != (asked := [key.name for key in self._keys]):
            problem = f"{self.name} is partitioned by {', '.join(partitions) or 'nothing'}, not by {', '.join(asked)}"
            raise ConfigError(problem, fix="Leave out the partitions, or use another table")
        _keys_of(partitions, self._columns)

    def columns(self) -> Sequence[str]:
        return [each for each in super().columns() if each in self._columns.names]

    def layout(self) -> TableLayout:
        keys = _keys_of(self._table.metadata().partition_columns, self._columns)
        partitions = {key.name for key in keys}
        fields = [
            each
            for each in pa.schema(self._table.schema())
            if each.name in self._columns.names and each.name not in partitions
        ]
        return TableLayout(schema=pa.schema(fields), keys=keys, file_bytes=self._file_bytes)

    def commit(self, row: Row, rows: Sequence[Row], attempt: Attempt, files: Sequence[DataFile]) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction, RemoveAction

        names = self._table.metadata().partition_columns
        folder = attempt.directory.removeprefix(f"{self.name.rstrip('/')}/")
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=f"{folder}/{each.path}",
                size=each.bytes,
                partition_values=dict(zip(names, each.partition, strict=True)),
                modification_time=now,
                data_change=True,
                stats=each.statistics,
            )
            for each in files
        ]
        properties = CommitProperties(
            custom_metadata={JOB: self.job_id, PART: row.to_json()},
            app_transactions=[Transaction(self._app, len(rows) + 1)],
        )
        before = self._table.version()
        self._table.create_write_transaction(
            actions, "append", self._table.schema(), partition_by=names, commit_properties=properties
        )
        self._save([*rows, row])
        return self._table.version() == before + 1

    def _load_or_create(self) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError, DeltaError

        self.conflicts = (CommitFailedError,)
        try:
            if not DeltaTable.is_deltatable(self.name, self._storage):
                self._check_is_free()
                keys = _keys_of(("day",), self._columns) if self._keys is None else self._keys
                added = [pa.field(key.name, _PERIODS[key.name][1]) for key in keys if key.unit is not None]
                DeltaTable.create(
                    self.name,
                    pa.schema([*self._columns, *added]),
                    mode="ignore",
                    partition_by=[key.name for key in keys],
                    storage_options=self._storage,
                )
            self._table = DeltaTable(self.name, storage_options=self._storage)
        except ConfigError:
            raise
        except (DeltaError, OSError, ValueError) as error:
            problem = f"table {self.name} cannot be opened or created: {first_line(error)}"
            raise ConfigError(
                problem, fix="Name a directory that is a Delta table, is empty, or does not exist"
            ) from error

    def _check_is_free(self) -> None:
        """Refuse a directory of other files, such as a store of RocketMQ, where Delta would make a table."""
        root = self._folder.rpartition("/")[0]
        found = listed(self._system, root)
        names = sorted(each.base_name for each in found)
        if names and _LOG not in names:  # another job may have made the table since it was looked for
            raise ConfigError(
                f"the target holds something else already: `{names[0]}`",
                path=self.name,
                fix="Name a directory that is a Delta table, is empty, or does not exist",
            )

    def _enter(self) -> None:
        """Note what this job is asked for, and refuse messages of another one."""
        self._system.create_dir(self._folder, recursive=True)
        jobs = self.jobs()
        self.job_id = self.job.find(jobs, self.name)
        if jobs.get(self.job_id) != self.job.to_json():
            self._replace(self._place("json"), self.job.to_json())

    def _save(self, rows: Sequence[Row]) -> None:
        """Replace the ledger. Runs at once may replace it by an older one: the log has what that lacks."""
        self._replace(self._place("ledger"), pack(rows))

    def _replace(self, path: str, text: str) -> None:
        new = f"{path}.{uuid.uuid4().hex}"
        with self._system.open_output_stream(new) as stream:
            stream.write(text.encode())
        self._system.move(new, path)


def check_rules(table: "DeltaTable", written: Sequence[str], name: str) -> None:
    """Raise `ConfigError` with all rules that a table has for its writers, and that are not followed here.

    Files are added as they are: no row is checked, and no column is computed.
    """
    protocol, configuration = table.protocol(), table.metadata().configuration
    found = [f"the constraint `{key.removeprefix(_CHECK)}`" for key in configuration if key.startswith(_CHECK)]
    for field in json.loads(table.schema().to_json())["fields"]:
        # Rules of nested fields are in the field's own JSON.
        text = json.dumps(field)
        found += [f"{kind} of the column `{field['name']}`" for key, kind in _COLUMN_RULES.items() if f'"{key}' in text]
        if _DEFAULT in field["metadata"] and field["name"] not in written:
            found.append(f"the default of the column `{field['name']}`, which is not written")
    features = set(protocol.writer_features or ())
    if protocol.min_writer_version == _IDENTITY_VERSION:
        features.add("identityColumns")
    if configuration.get(_MAPPING, "none") != "none":
        found.append("the column mapping")
    found += [f"the feature {each}" for each in sorted(features - _FEATURES)]
    if found:
        problem = f"{name} has rules for writers that a backfill cannot follow: {', '.join(found)}"
        raise ConfigError(problem, fix="Remove them from the table, or write into another table")


def _keys_of(names: Sequence[str], columns: pa.Schema) -> tuple[PartitionKey, ...]:
    """Return the keys for words or names of partition columns; ``day`` and ``hour`` unless frames have such columns."""
    names = list(names)
    if "hour" in names and "day" not in names and "hour" not in columns.names:
        names.insert(names.index("hour"), "day")
    found: list[PartitionKey] = []
    for name in names:
        if name in _PERIODS and name not in columns.names:
            partition_keys([name], columns)  # refuses frames without times
            found.append(_PERIODS[name][0])
        else:
            found += partition_keys([name], columns)
    return tuple(found)
