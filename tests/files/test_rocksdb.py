import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from segmentlog.store import CorruptError, MissingExtraError, SegmentLogError, StoreClosedError, UnsafeFileError
from segmentlog.store.errors import FileTooLargeError, MissingFileError
from segmentlog.store.files import rocksdb
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.rocksdb import RocksDatabase, is_rocksdb
from support import fixtures, strace
from support.scale import scale

rocksdict = pytest.importorskip("rocksdict")

FS = LocalFileSystem()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return fixtures.unpack("queues-rocksdb-5.5.0", tmp_path) / "consumequeue"


def made(path: Path, count: int = 100) -> Path:
    database = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    for number in range(count):
        database[b"key%04d" % number] = b"value"
    database.flush()
    database.close()
    return path


def state(directory: Path) -> dict[str, tuple[int, int, int]]:
    paths = [directory, *directory.rglob("*")]
    return {str(p): ((s := p.stat()).st_size, s.st_mtime_ns, s.st_ino) for p in paths}


def read_all(directory: Path) -> dict[str, dict[bytes, bytes]]:
    with RocksDatabase.open(FS, str(directory)) as database:
        return {family: dict(database.items(family)) for family in database.families}


def test_a_database_is_recognized_without_the_wheel(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    (directory / "SomeTopic" / "0").mkdir(parents=True)
    assert is_rocksdb(FS, str(directory))
    assert not is_rocksdb(FS, str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"pip install 'segmentlog\[rocksdb\]'"):
        RocksDatabase.open(FS, str(directory))


def test_a_closed_database_is_an_error(directory: Path) -> None:
    with RocksDatabase.open(FS, str(directory)) as database:
        family = database.families[0]
    for use in (
        lambda: database.families,
        lambda: database.get(family, b"k"),
        lambda: database.first(family, b""),
        lambda: database.values(family, b"", b"z", 1),
        lambda: list(database.items(family)),
    ):
        with pytest.raises(StoreClosedError, match="the RocksDB database was closed"):
            use()
    database.close()


def test_nothing_in_the_directory_changes_and_no_file_remains(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for path in directory.iterdir():
        path.chmod(0o444)
    directory.chmod(0o555)
    before = state(directory)
    found = read_all(directory)
    assert len(found["default"]) == 300
    assert state(directory) == before
    assert list(temporary.iterdir()) == []
    directory.chmod(0o755)


@pytest.mark.skipif(bool(strace.WHY_NOT), reason=strace.WHY_NOT)
def test_no_call_writes_creates_or_locks_in_the_directory(directory: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    program = (
        "import sys; from segmentlog.store.files.fs import LocalFileSystem;"
        "from segmentlog.store.files.rocksdb import RocksDatabase;"
        "d = RocksDatabase.open(LocalFileSystem(), sys.argv[1]); print(len(list(d.items('default')))); d.close()"
    )
    calls = "trace=openat,open,creat,unlink,unlinkat,rename,renameat,mkdir,mkdirat,flock,fcntl,link,linkat,symlink"
    command = ["strace", "-f", "-o", str(trace), "-e", calls, sys.executable, "-c", program, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "300\n"
    lines = trace.read_text(encoding="utf-8").splitlines()
    ours = [line for line in lines if str(directory) in line and "symlink" not in line]
    assert ours
    assert not [line for line in ours if not ("open" in line and "O_RDONLY" in line and "O_CREAT" not in line)]
    assert not [line for line in lines if "F_SETLK" in line or "flock(" in line]


def test_tables_that_are_deleted_after_the_opening_stay_readable(directory: Path) -> None:
    with RocksDatabase.open(FS, str(directory)) as database:
        shutil.rmtree(directory)
        assert len(list(database.items("default"))) == 300
        assert database.first("default", b"") is not None


def test_a_database_is_current_until_its_writer_flushes(tmp_path: Path) -> None:
    path = made(tmp_path / "db")
    with RocksDatabase.open(FS, str(path)) as database:
        assert database.is_current(FS)
        made(path, 200)
        assert not database.is_current(FS)
        assert len(list(database.items("default"))) == 100
    assert len(read_all(path)["default"]) == 200


def test_readers_open_while_a_writer_flushes_and_compacts(tmp_path: Path) -> None:
    path = made(tmp_path / "db")
    writer = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    stop = threading.Event()

    def write() -> None:
        at = 100
        while not stop.is_set():
            writer[b"key%04d" % at] = b"value"
            at += 1
            writer.flush()
            if at % 5 == 0:
                writer.compact_range(None, None)
            stop.wait(0.1)  # a broker flushes every few minutes

    thread = threading.Thread(target=write)
    thread.start()
    try:
        sizes = [len(read_all(path)["default"]) for _ in range(20)]
    finally:
        stop.set()
        thread.join()
        writer.close()
    assert sizes == sorted(sizes)
    assert sizes[0] >= 100


def test_an_unfinished_table_of_a_running_broker_does_not_matter(directory: Path) -> None:
    whole = read_all(directory)
    (directory / "000099.sst").write_bytes(b"unfinished")
    assert read_all(directory) == whole


def test_a_database_that_changes_during_many_attempts_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "db")
    changes = iter(range(12))
    attempt = RocksDatabase._open.__func__  # type: ignore[attr-defined]

    def changed(cls: type[RocksDatabase], wheel: object, fs: object, directory: str, stamp: object) -> RocksDatabase:
        if next(changes, None) is not None:
            made(path, 1)  # the manifest grows
            raise CorruptError("IO error: No such file or directory: 000312.log", path=directory)
        opened: RocksDatabase = attempt(cls, wheel, fs, directory, stamp)
        return opened

    monkeypatch.setattr(RocksDatabase, "_open", classmethod(changed))
    assert len(read_all(path)["default"]) == 100
    assert next(changes, None) is None


class TestDamage:
    def test_a_missing_table_is_damage(self, directory: Path) -> None:
        (directory / "000010.sst").unlink()
        with pytest.raises(CorruptError, match="No such file"):
            read_all(directory)

    def test_a_length_in_a_footer_beyond_the_table_is_damage(self, directory: Path) -> None:
        table = directory / "000010.sst"
        data = bytearray(table.read_bytes())
        data[-52:-47] = b"\xff\xff\xff\xff\xff"
        table.write_bytes(data)
        with pytest.raises(CorruptError, match="block ends beyond its end") as error:
            read_all(directory)
        assert error.value.path == str(table)

    def test_a_current_file_that_names_no_manifest_is_damage(self, directory: Path) -> None:
        (directory / "CURRENT").write_text("../MANIFEST-000001\n", encoding="utf-8")
        with pytest.raises(CorruptError, match="names no manifest"):
            read_all(directory)
        (directory / "CURRENT").write_text("MANIFEST-000001\n", encoding="utf-8")
        with pytest.raises(CorruptError, match="MANIFEST-000001, is missing"):
            read_all(directory)

    @pytest.mark.parametrize("kind", [5, 6, 7, 8, 11])
    @pytest.mark.parametrize("in_log", [False, True], ids=["manifest", "log"])
    @pytest.mark.timeout(60)
    def test_a_record_of_a_recycled_log_is_damage(self, kind: int, in_log: bool, tmp_path: Path) -> None:
        database = rocksdict.Rdict(str(tmp_path / "db"), rocksdict.Options(raw_mode=True))
        for key in (b"a", b"b"):
            database[key] = b"value"
        database.flush_wal()
        copy = shutil.copytree(tmp_path / "db", tmp_path / "copy")
        database.close()
        assert read_all(copy)["default"] == {b"a": b"value", b"b": b"value"}
        (file,) = copy.glob("*.log" if in_log else "MANIFEST-*")
        data = bytearray(file.read_bytes())
        second = 7 + int.from_bytes(data[4:6], "little")
        data[second + 6] = kind
        file.write_bytes(data)
        with pytest.raises(CorruptError, match=f"type {kind}, of a recycled log") as error:
            read_all(copy)
        assert (error.value.path, error.value.offset) == (str(file), second)

    def test_without_a_database_a_file_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFileError, match="no RocksDB database"):
            read_all(tmp_path)

    def test_links_are_refused(self, directory: Path, tmp_path: Path) -> None:
        (directory / "000010.sst").rename(tmp_path / "elsewhere")
        (directory / "000010.sst").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(UnsafeFileError):
            read_all(directory)

    def test_write_ahead_logs_have_a_limit(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rocksdb, "_LOG_BYTES_MAX", 10)
        with open(directory / "000004.log", "ab") as log:
            log.write(bytes(11))
        with pytest.raises(FileTooLargeError, match="11 bytes"):
            read_all(directory)


def _damage(directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = chance.choice(sorted(p for p in directory.iterdir() if p.name[0] in "0MC"))
    data = bytearray(path.read_bytes())
    kind = chance.choice(["flip", "cut", "gone", "zeros", "noise", "footer"])
    if kind == "gone" or not data:
        path.unlink()
        return
    at = chance.randrange(len(data))
    end = min(at + chance.randint(1, 64), len(data))
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "footer":
        data[-1 - chance.randrange(min(len(data), 53))] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del data[at:]
    else:
        data[at:end] = bytes(end - at) if kind == "zeros" else chance.randbytes(end - at)
    path.write_bytes(data)


def _judge(source: str, scratch: str, first: int, count: int) -> None:
    """Read damaged copies of a database: each one is an error, or some of the right items."""
    import resource  # noqa: PLC0415 - in the process of the attack

    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    right = read_all(Path(source))
    for seed in range(first, first + count):
        print(seed, flush=True)  # noqa: T201 - names the case that ends the process
        directory = Path(scratch) / str(seed)
        shutil.copytree(source, directory)
        _damage(directory, seed)
        try:
            found = read_all(directory)
        except SegmentLogError:
            found = {}
        shutil.rmtree(directory)
        for family, items in found.items():
            assert items.items() <= right[family].items(), f"seed {seed}"
    print("done", flush=True)  # noqa: T201


@pytest.mark.attack
@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("name", ["with a log", "queues-rocksdb-5.5.0", "queues-moved-5.5.0"])
def test_damage_never_ends_the_process_nor_makes_up_entries(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    if name == "with a log":
        database = rocksdict.Rdict(str(made(tmp_path / "db")), rocksdict.Options(raw_mode=True))
        for number in range(100, 200):
            database[b"key%04d" % number] = b"value"
        database.flush_wal()
        origin = tmp_path / "db"
    else:
        origin = fixtures.unpack(name, tmp_path) / "consumequeue"
    for path in origin.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    count = scale(40, 1500, 10000)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import test_rocksdb as t;"
        "t._judge(*sys.argv[3:5], 0, int(sys.argv[5]))"
    )
    here = Path(__file__).parent
    arguments = [str(here), str(here.parent), str(source), str(tmp_path), str(count)]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=550
    )
    assert done.returncode == 0, f"{signal.strsignal(-done.returncode) if done.returncode < 0 else ''} {done.stderr}"
    assert done.stdout.endswith("done\n")
    assert os.listdir(source)
