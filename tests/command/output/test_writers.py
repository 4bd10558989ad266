import csv
import gc
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmentlog.command import console
from segmentlog.command.output import writers
from segmentlog.command.output.formats import Format, Pace
from segmentlog.command.output.writers import csv_batch, writer_of
from support.commands import run_command

BATCH = pa.record_batch(
    {"topic": ["orders", 'a "b", c\nd', ""], "queueId": [0, 1, None], "body": pa.array([b"x", b"\xff", None])}
)
TABLE = pa.Table.from_batches([BATCH, BATCH])


def written(format_: Format, *batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    writer = writer_of(format_, sink, BATCH.schema, None)
    for batch in batches:
        writer.write(batch)
    writer.close()
    return sink.getvalue()


def test_json() -> None:
    lines = written(Format.JSON_LINES, BATCH, BATCH).splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[1] == {"topic": 'a "b", c\nd', "queueId": 1, "bodyHex": "ff"}
    assert json.loads(written(Format.JSON, BATCH, BATCH)) == rows
    assert json.loads(written(Format.JSON, BATCH.slice(0, 0))) == json.loads(written(Format.JSON)) == []
    assert written(Format.JSON_LINES) == b""


def test_live_rows_are_written_at_once() -> None:
    for format_ in (Format.JSON_LINES, Format.TABLE):
        sink = io.BytesIO()
        writer_of(format_, sink, BATCH.schema, None, Pace.LIVE).write(BATCH)
        assert b"orders" in sink.getvalue()


def test_csv() -> None:
    rows = list(csv.reader(io.StringIO(written(Format.CSV, BATCH).decode())))
    assert rows == [
        ["topic", "queueId", "body", "bodyHex"],
        ["orders", "0", "x", ""],
        ['a "b", c\nd', "1", "", "ff"],
        ["", "", "", ""],
    ]
    assert written(Format.CSV).decode() == '"topic","queueId","body","bodyHex"\n'


@pytest.mark.parametrize("format_", [Format.ARROW_FILE, Format.ARROW_STREAM, Format.PARQUET])
def test_binary_formats_keep_types_and_bytes(format_: Format) -> None:
    def read(data: bytes) -> pa.Table:
        match format_:
            case Format.ARROW_FILE:
                return pa.ipc.open_file(data).read_all()
            case Format.ARROW_STREAM:
                return pa.ipc.open_stream(data).read_all()
        return pq.read_table(pa.BufferReader(data))

    assert read(written(format_, BATCH, BATCH)).equals(TABLE)
    assert read(written(format_)).equals(TABLE.slice(0, 0))


def test_parquet_writes_row_groups_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_ROW_GROUP_BYTES", 1)
    found = pq.ParquetFile(pa.BufferReader(written(Format.PARQUET, BATCH, BATCH)))
    assert found.num_row_groups == 2
    assert found.read().equals(TABLE)


@pytest.mark.parametrize("format_", Format)
def test_an_abandoned_writer_writes_nothing_more(format_: Format) -> None:
    sink = io.BytesIO()
    writer = writer_of(format_, sink, BATCH.schema, None)
    writer.write(BATCH)
    before = sink.getvalue()
    writer.abandon()
    del writer
    gc.collect()
    assert sink.getvalue() == before


@pytest.mark.parametrize("format_", Format)
def test_an_error_of_the_sink_is_raised_as_it_is(format_: Format) -> None:
    """A closed pipe ends the command quietly, so it has to be known for one."""

    class Closed(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    def write() -> None:
        writer = None
        try:
            writer = writer_of(format_, Closed(), BATCH.schema, None)
            writer.write(BATCH)
            writer.close()
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise

    with pytest.raises(BrokenPipeError):
        write()


FLAT = pa.record_batch(
    {
        "queueId": pa.array([1, None], pa.int32()),
        "body": pa.array([b"a\x1b", b"\xff"]),
        "properties": pa.array([[("a", 'say "hi"')], None], pa.map_(pa.string(), pa.string())),
        "storeTimestamp": pa.array([0, None], pa.timestamp("us", "UTC")),
    }
)


def test_each_column_is_flat() -> None:
    found = csv_batch(FLAT, is_escaped=False)
    assert found.schema.names == ["queueId", "body", "bodyHex", "properties", "storeTimestamp"]
    assert found.schema == csv_batch(FLAT.slice(0, 0), is_escaped=False).schema
    assert found.to_pylist() == [
        {
            "queueId": 1,
            "body": "a\x1b",
            "bodyHex": None,
            "properties": '{"a":"say \\"hi\\""}',
            "storeTimestamp": "1970-01-01T00:00:00.000Z",
        },
        {"queueId": None, "body": None, "bodyHex": "ff", "properties": None, "storeTimestamp": None},
    ]


def test_a_file_is_complete_or_absent(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "queues.parquet"
    ran = run_command("queues", store, "-w", file)
    assert (ran.code, ran.out, ran.err) == (0, b"", "")
    assert pq.read_table(file).num_rows == 9

    def failing(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writers.Parquet, "write", failing)
    ran = run_command("queues", store, "-w", tmp_path / "other.parquet")
    assert ran.code == 2
    assert f"where:  {tmp_path}/other.parquet" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["queues.parquet"]


def test_a_file_is_not_replaced(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "queues.csv"
    file.write_text("mine")
    ran = run_command("queues", store, "-w", file)
    assert ran.code == 2
    assert f"-w: `{file}` exists" in ran.err
    assert file.read_text() == "mine"


def test_a_file_that_cannot_be_made_is_a_wrong_flag(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "absent/queues.csv"
    ran = run_command("queues", store, "-w", file)
    assert ran.code == 2
    assert "-w: No such file or directory\n" in ran.err
    assert f"where:  {file}\n  remedy: Name a file in a directory" in ran.err


def test_a_file_that_appears_meanwhile_is_not_replaced(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "queues.csv"

    def overtaken(*_: object) -> int:
        file.write_text("theirs")
        return 1

    monkeypatch.setattr(writers, "_write", overtaken)
    assert run_command("queues", store, "-w", file).code == 2
    assert file.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["queues.csv"]


def test_progress_is_for_terminals_and_goes_away(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_TERMINAL_S", 0.0)
    assert run_command("queues", store, "-w", tmp_path / "a.csv").err == ""
    shown = run_command("queues", store, "-w", tmp_path / "b.csv", terminal=True).err
    assert "9 rows, " in shown
    assert shown.endswith("\x1b[2K")  # the line is erased
    assert run_command("queues", store, terminal=True).err == ""
