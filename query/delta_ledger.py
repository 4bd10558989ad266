"""Ledger of a Delta table, by deltalake.

::

    TABLE/_delta_log/N.json                     custom metadata segmentlogPart: the part of one commit
    TABLE/_segmentlog/JOB.ledger                parts, copied from the commits, which the log forgets
    TABLE/_segmentlog/JOB.json                  what the job is asked for
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from segmentlog.store import ConfigError

from .extras import optional_module
from .ledgers import KEYS, Bounds, Ledger, first_line, listed
from .parts import Row, unpack

if TYPE_CHECKING:
    from deltalake import DeltaTable

PART: Final = "segmentlogPart"
JOB: Final = "segmentlogJob"


class DeltaLedger(Ledger):
    """Table of Delta Lake; parameters as of `DeltaTarget`."""

    _table: "DeltaTable"
    _system: fs.FileSystem
    _folder: str

    def __init__(self, table: str, storage_options: Mapping[str, str] | None = None) -> None:
        if not table:
            raise ConfigError("the path of the table is empty", fix="Write delta:PATH")
        self.name = table.rstrip("/") if "://" in table else os.path.abspath(os.path.expanduser(table))
        self._storage = dict(storage_options or {}) or None

    def connect(self) -> None:
        """Find the directory."""
        optional_module("deltalake", "Delta tables need", extra="delta")
        try:
            self._system, root = fs.FileSystem.from_uri(self.name)
        except (OSError, ValueError) as error:
            fix = "Use a path, or a URI of a file system that pyarrow has"
            raise ConfigError(f"table {self.name} cannot be opened: {error}", fix=fix) from error
        self._folder = f"{root}/_segmentlog"

    def load(self) -> None:
        """Open the table; `ConfigError` if there is none."""
        self.connect()
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            self._table = DeltaTable(self.name, storage_options=self._storage)
        except (DeltaError, OSError, ValueError) as error:
            problem = f"table {self.name} cannot be opened: {first_line(error)}"
            raise ConfigError(problem, fix="Name the directory of a Delta table") from error

    def close(self) -> None:
        """Let other jobs have it: nothing is kept open."""

    def refresh(self) -> None:
        self._table.update_incremental()

    def state(self) -> object:
        return self._table.version()

    def columns(self) -> Sequence[str]:
        return [each.name for each in self._table.schema().fields]

    def jobs(self) -> Mapping[str, str]:
        found = listed(self._system, self._folder)
        names = [each.base_name.removesuffix(".json") for each in found if each.base_name.endswith(".json")]
        return {name: self._read(f"{self._folder}/{name}.json") for name in names}

    def ledger(self) -> list[Row]:
        rows = {row.attempt: row for row in [*self._saved(), *self._committed()]}
        count = self._table.transaction_version(self._app) or 0
        if len(rows) < count:
            problem = f"{self.name} has {count} parts of this job, and its log and ledger name {len(rows)}"
            fix = f"Restore {self._place('ledger')} from a copy, or write into another table"
            raise ConfigError(problem, fix=fix)
        return list(rows.values())

    def files(self, bounds: Bounds) -> Sequence[str]:  # noqa: ARG002 - all names are loaded
        return self._table.file_uris()

    def keys(self, bounds: Bounds, reads: Callable[[str], bool]) -> pa.Table:
        import pyarrow.dataset as ds

        found = self._table.to_pyarrow_dataset()
        files = [each for each in found.get_fragments() if reads(each.path)]
        rows = ds.FileSystemDataset(files, found.schema, found.format, found.filesystem)
        condition = pc.scalar(True)  # noqa: FBT003 - a value
        for name, (low, high) in bounds.items():
            column = pc.field(name)
            condition &= ((column >= low) & (column < high)) | column.is_null()
        return rows.to_table(list(KEYS), condition)

    @property
    def _app(self) -> str:
        return f"segmentlog-{self.job_id}"

    def _place(self, kind: str) -> str:
        return f"{self._folder}/{self.job_id}.{kind}"

    def _committed(self) -> list[Row]:
        return [
            Row.from_json(entry[PART], f"version {entry.get('version')} of {self.name}")
            for entry in self._table.history()
            if entry.get(JOB) == self.job_id
        ]

    def _saved(self) -> list[Row]:
        path = self._place("ledger")
        if self._system.get_file_info(path).type is fs.FileType.NotFound:
            return []
        return unpack(self._read(path), path)

    def _read(self, path: str) -> str:
        with self._system.open_input_stream(path) as stream:
            return str(stream.read().decode("utf-8", "replace"))
