import zlib
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, QueueRange, Snapshot
from segmentlog.store.archive.push import push
from segmentlog.store.objects.opening import open_objects
from support.archived_store import CONFIG, append_rows, write_whole
from support.dledger import write_store

from .plain_archive_reader import Archive


@pytest.mark.parametrize("pushes", [1, 9])
def test_a_program_that_has_the_documents_alone_reads_an_archive(tmp_path: Path, pushes: int) -> None:
    path = write_whole(tmp_path / "store", 150)
    for at in range(pushes):
        with MessageStore.open(path, CONFIG) as store:
            append_rows(store, 150 + 10 * at, 10)
        push(path, open_objects(f"file://{tmp_path}/archive"))
    check(Archive(tmp_path / "archive"), Snapshot.open(path))


def test_it_reads_an_archive_of_a_dledger_log(tmp_path: Path) -> None:
    write_store(tmp_path / "store")
    push(tmp_path / "store", open_objects(f"file://{tmp_path}/archive"))
    archive = Archive(tmp_path / "archive")
    assert archive.manifest["features"] == ["dledger"]
    check(archive, Snapshot.open(tmp_path / "store"))


def check(archive: Archive, snapshot: Snapshot) -> None:
    bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
    assert archive.queues() == {tuple(each.key): (each.min_offset, each.max_offset - 1, len(each)) for each in bounds}
    for each in bounds:
        found = list(archive.records(*each.key))
        assert [offset for offset, _, _ in found] == list(range(each.min_offset, each.max_offset))
        sizes = snapshot.entries.sizes(QueueRange(each.key, each.min_offset, each.max_offset))
        assert [len(record) for _, _, record in found] == sizes.tolist()
        for offset, time, record in found[::7]:
            place = snapshot.entries.place_of(each.key, offset)
            assert place is not None
            assert snapshot.log.store_time_at(place) == time
            segment = snapshot.log.find(place)
            assert segment is not None
            held = snapshot.log.view(segment)[place - segment.base :][: len(record)]
            assert zlib.crc32(held.tobytes()) == zlib.crc32(record)
