import shutil
from pathlib import Path

import pytest

from segmentlog.store import BatchId, MessageStore, NotAStoreError, Snapshot, StoreConfig, StoreInUseError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.log.confirmed import ConfirmationFile, confirmed_offset
from segmentlog.store.maintenance import verify
from segmentlog.store.maintenance.offline import OfflineStore
from segmentlog.store.sink import commit_batch
from support.batches import stage_messages
from support.reading import read
from support.written_stores import SMALL, message

FS = LocalWritableFileSystem()


def rows(path: Path, **options: object) -> list[dict[str, object]]:
    return sorted(read(Snapshot.open(path, **options)), key=lambda row: row["physicalOffset"])  # type: ignore[arg-type]


def commit(path: Path, version: int, count: int, config: StoreConfig = SMALL) -> tuple[int, int]:
    staged = [
        stage_messages(path, [message(1, version, serial) for serial in range(count)], config, job=f"job{version}")
    ]
    committed = commit_batch(path, config, BatchId("q", version), staged)
    return committed.start, committed.stop


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("offline") / "store"
    with MessageStore.open(path, SMALL) as store:
        for serial in range(300):
            store.append(message(5, 1, serial))
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "store")


@pytest.mark.scaled(quick=3)
@pytest.mark.parametrize("kept", [0, 1, 40, 150, 298, 300])
def test_a_cut_log_is_as_if_it_had_never_been_longer(path: Path, kept: int) -> None:
    before = rows(path)
    with OfflineStore(FS, path) as store:
        end = store.end
        cut = int(str(before[kept]["physicalOffset"])) if kept < len(before) else end
        store.cut(cut)
        assert store.end == cut
    assert rows(path) == before[:kept]
    assert verify(path).findings == ()
    with MessageStore.open(path, SMALL) as opened:
        assert opened.recovered.was_clean
        assert (opened.end_offset, opened.recovered.cut_bytes, opened.recovered.corrected) == (cut, 0, 0)
        opened.append(message(5, 2, 0))
    assert rows(path)[:-1] == before[:kept]
    assert verify(path).findings == ()


def test_a_cut_drops_the_whole_batch_it_divides_and_all_later_batches(path: Path) -> None:
    spans = [commit(path, version, 20) for version in range(4)]
    before = rows(path)
    inside = next(int(str(row["physicalOffset"])) for row in before if int(str(row["physicalOffset"])) > spans[2][0])
    with OfflineStore(FS, path) as store:
        store.cut(inside)
        assert store.end == spans[2][0]
    ledger = BatchRecords(FS, str(path)).ledger()
    assert [entry.version for _, entry in ledger.beyond(0)] == [0, 1]
    assert rows(path) == [row for row in before if int(str(row["physicalOffset"])) < spans[2][0]]
    again = [commit(path, version, 20) for version in (1, 2, 3)]
    assert again[0] == spans[1], "it is in the log, and in the ledger"
    assert [start for start, _ in again[1:]] == [spans[2][0], spans[3][0]]
    assert verify(path).findings == ()


def test_the_confirmed_offset_is_at_most_the_cut(path: Path) -> None:
    offsets = [int(str(row["physicalOffset"])) for row in rows(path)]
    with ConfirmationFile(FS, str(path), 2) as file:
        file.publish(offsets[200], 2)
    for kept, confirmed in ((250, 200), (100, 100)):
        with OfflineStore(FS, path) as store:
            store.cut(offsets[kept])
        assert confirmed_offset(FS, str(path)) == offsets[confirmed]


def test_an_open_store_is_refused_and_an_error_leaves_the_store_as_a_crash_does(path: Path, tmp_path: Path) -> None:
    before = rows(path)
    with MessageStore.open(path, SMALL), pytest.raises(StoreInUseError):
        OfflineStore(FS, path)
    with OfflineStore(FS, path), pytest.raises(StoreInUseError):
        MessageStore.open(path, SMALL)
    with pytest.raises(NotAStoreError):
        OfflineStore(FS, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(ValueError, match="mine"), OfflineStore(FS, path):
        raise ValueError("mine")
    assert Path(StorePaths(str(path)).abort).exists()
    MessageStore.open(path, SMALL).close()
    assert rows(path) == before
