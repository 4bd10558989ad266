import shutil
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing
from segmentlog.store.maintenance import verify
from support.broker_index import query_index
from support.written_stores import SMALL, tree


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "s"
    with MessageStore.open(path, SMALL) as store:
        for at in range(200):
            store.append(Outgoing(topic="T", body=b"x" * 200, keys=f"k{at}"))
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "s")


def queues(path: Path) -> dict[str, bytes | str]:
    return {name: data for name, data in tree(path).items() if name.startswith("consumequeue")}


def test_queues_that_were_deleted_are_written_again(path: Path) -> None:
    before = queues(path)
    shutil.rmtree(path / "consumequeue" / "T")
    (path / ".segmentlog" / "durable").unlink()
    with MessageStore.open(path, SMALL) as store:
        assert store.recovered.corrected == 200
    assert queues(path) == before


def test_entries_of_a_broker_that_are_wrong_are_corrected_and_counted(path: Path) -> None:
    shutil.rmtree(path / ".segmentlog")
    before = queues(path)
    first = min((path / "consumequeue" / "T" / "0").iterdir())
    with first.open("r+b") as file:
        file.seek(5 * 20)
        file.write(bytes(40))
    with MessageStore.open(path, SMALL) as store:
        assert store.recovered.corrected == 2
    assert queues(path) == before


def test_keys_of_messages_before_a_cut_are_found_although_their_index_file_is_dropped(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        (offset,) = query_index(store, "T", "k30")
    base = offset - offset % SMALL.segment_bytes
    with (path / "commitlog" / f"{base:020d}").open("r+b") as segment:
        segment.seek(offset - base)
        segment.write(bytes(SMALL.segment_bytes - (offset - base)))
    for later in sorted((path / "commitlog").iterdir()):
        if int(later.name) > base:
            later.unlink()
    (path / ".segmentlog" / "durable").unlink()
    with MessageStore.open(path, SMALL) as store:
        assert store.end_offset == offset
        assert [len(query_index(store, "T", f"k{at}")) for at in range(31)] == [1] * 30 + [0]
    assert verify(path).is_sound


def test_an_index_file_that_lost_its_bytes_is_written_again(path: Path) -> None:
    names = sorted((path / "index").iterdir())
    names[-1].write_bytes(b"")
    with MessageStore.open(path, SMALL):
        pass
    assert sorted((path / "index").iterdir())[:-1] == names[:-1]
    assert verify(path).is_sound


def test_empty_files_after_queues_and_index_leave_no_trace(path: Path) -> None:
    before = tree(path)
    last = max((path / "consumequeue" / "T" / "0").iterdir())
    (last.parent / f"{int(last.name) + last.stat().st_size:020d}").touch()
    (path / "index" / "20301231235959999").touch()
    with MessageStore.open(path, SMALL):
        pass
    assert verify(path).is_sound
    assert {name for name in tree(path) if name.startswith(("consumequeue", "index"))} == {
        name for name in before if name.startswith(("consumequeue", "index"))
    }
