import fcntl
import shutil
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import (
    ConfigError,
    DataLossError,
    MessageStore,
    OnLoss,
    Outgoing,
    Snapshot,
    StoreConfig,
    StoreInUseError,
)
from segmentlog.store.format import index_file
from segmentlog.store.format.consume_queue import ENTRY, ENTRY_BYTES, PAD_SIZE
from segmentlog.store.maintenance import rebuild_index, rebuild_queues
from support import fixtures, oracle, reading, writing
from support.broker_index import Index
from support.store_builder import Appended, Geometry, StoreBuilder, messages
from support.tampering import contents, overwrite

SMALL = Geometry(segment_bytes=4096, queue_segment_entries=30)

# The others have no queues, or queues of other messages than those that are whole in the log.
SAME = [
    name
    for name in fixtures.names()
    if name not in {*fixtures.in_rocksdb(), *fixtures.dledger()}
    and not name.startswith(("cq-", "crash-cq-", "crash-garbage", "crash-zeros", "retention", "empty"))
]


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def entries_per_file(name: str) -> int:
    return -(-int(fixtures.config(name).get("mappedFileSizeConsumeQueue", 6_000_000)) // ENTRY_BYTES)


@pytest.mark.scaled(quick=6)
@pytest.mark.conformance
@pytest.mark.parametrize("name", SAME)
def test_bytes_are_rocketmqs(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    shutil.move(store / "consumequeue", tmp_path / "original")
    others = writing.tree(store)
    report = rebuild_queues(Snapshot.open(store), store / "consumequeue", entries_per_segment=entries_per_file(name))
    rebuilt = writing.tree(store / "consumequeue")
    assert rebuilt == writing.tree(tmp_path / "original")
    assert {path: data for path, data in writing.tree(store).items() if not path.startswith("consumequeue/")} == others
    assert (report.files, report.bytes) == (len(rebuilt), sum(size for size, _ in rebuilt.values()))


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["retention-4.9.1", "retention-5.3.3"])
def test_deleted_messages_become_pads(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    log_start = Snapshot.open(store).log.min_offset
    assert log_start > 0
    report = rebuild_queues(Snapshot.open(store), tmp_path / "new", entries_per_segment=entries_per_file(name))
    original = files(store / "consumequeue")
    alive = 0
    for path, data in files(tmp_path / "new").items():
        ours, theirs = np.frombuffer(data, ENTRY), np.frombuffer(original[path], ENTRY)
        pads = ours["size"] == PAD_SIZE
        assert (theirs["physical_offset"][pads] < log_start).all()
        assert not ours["physical_offset"][pads].any()
        assert (ours[~pads] == theirs[~pads]).all()
        alive += int((ours["size"] > 0).sum() - pads.sum())
    assert alive == report.entries


@pytest.mark.interop
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
def test_a_broker_that_does_not_rebuild_queues_reads_our_rebuilt_queues(tmp_path: Path) -> None:
    name = "cq-deleted-5.1.0"
    store = fixtures.unpack(name, tmp_path)
    config = fixtures.config(name)
    assert not [line for line in oracle.dump(store, config, "5.1.0") if line["type"] == "message"]
    rebuild_queues(Snapshot.open(store), store / "consumequeue", entries_per_segment=entries_per_file(name))
    read = {
        line["phyOffset"]: line["recordSha256"]
        for line in oracle.dump(store, config, "5.1.0")
        if line["type"] == "message"
    }
    assert read == {line["phyOffset"]: line["recordSha256"] for line in fixtures.expected(name).records}
    assert len(read) == 250


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def build(path: Path, *, count: int = 60, queues: int = 1) -> Appended:
    with StoreBuilder(path, geometry=SMALL) as builder:
        appended = builder.append(messages(count, queues=queues))
    shutil.rmtree(path / "consumequeue")
    return appended


@pytest.fixture
def appended(store: Path) -> Appended:
    return build(store)


def rebuilt_entries(store: Path, queue_id: int = 0) -> np.ndarray:
    rebuild_queues(Snapshot.open(store), store / "consumequeue", entries_per_segment=SMALL.queue_segment_entries)
    folder = store / "consumequeue" / "Orders" / str(queue_id)
    data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    entries = np.frombuffer(data, ENTRY)
    return entries[: int(np.flatnonzero(entries["size"])[-1]) + 1]


def test_queues_and_index_elsewhere_have_at_most_the_permissions_of_their_store(
    store: Path, appended: Appended, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    store.chmod(0o700)
    rebuild_queues(store, tmp_path / "queues")
    rebuild_index(store, tmp_path / "index")
    made = [path for name in ("queues", "index") for path in (tmp_path / name, *(tmp_path / name).rglob("*"))]
    assert {path.stat().st_mode & 0o77 for path in made} == {0}


@pytest.mark.parametrize("lost", [[7], [7, 8], [20, 21, 22, 23], [40, 42], [0, 1]])
def test_messages_after_damage_keep_their_offsets(store: Path, appended: Appended, lost: list[int]) -> None:
    for row in lost:
        overwrite(store, int(appended.physical_offsets[row]), bytes(int(appended.sizes[row])))
    entries = rebuilt_entries(store)
    assert entries.size == 60
    kept = np.setdiff1d(np.arange(60), lost)
    assert (entries["physical_offset"][kept] == appended.physical_offsets[kept]).all()
    for row in lost:
        assert entries[row] == entries[kept[kept > row][0]]
    with pytest.raises(DataLossError, match=f"the first at offset {lost[0]}"):
        list(reading.read(Snapshot.open(store), max_bytes=1 << 20))
    rows = list(reading.read(Snapshot.open(store), on_loss=OnLoss.SKIP))
    assert [row["queueOffset"] for row in rows] == kept.tolist()


def test_hostile_names_and_numbers_get_no_file(store: Path, appended: Appended) -> None:
    record, size = int(appended.physical_offsets[3]), int(appended.sizes[3])
    overwrite(store, record, contents(store, record, size).replace(b"Orders", b"../../"))
    overwrite(store, int(appended.physical_offsets[5]) + 12, (-5).to_bytes(4, "big", signed=True))
    rebuilt_entries(store)
    assert [path.name for path in store.parent.iterdir()] == ["store"]
    assert [path.name for path in (store / "consumequeue").rglob("*") if path.is_dir()] == ["Orders", "0"]


def test_a_store_with_an_owner_is_left_alone_and_a_broker_cannot_start_meanwhile(
    store: Path, appended: Appended, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "lock").write_bytes(b"lock")
    new, asked = store.with_name("new"), list[int]()
    with pytest.raises(ConfigError, match="0 entries"):
        rebuild_queues(Snapshot.open(store), new, entries_per_segment=0)
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "is_live", property(lambda _: True))
        with pytest.raises(StoreInUseError, match="another process"):
            rebuild_queues(Snapshot.open(store), new)
    assert not new.exists()
    monkeypatch.setattr(fcntl, "lockf", lambda _fd, how, *_: asked.append(how))
    rebuild_queues(Snapshot.open(store), new)
    assert asked == []
    rebuild_queues(Snapshot.open(store), store / "consumequeue")
    assert asked == [fcntl.LOCK_EX | fcntl.LOCK_NB] * 2  # once more before the queues get their name


def test_a_rebuilt_index_equals_the_written_index(tmp_path: Path) -> None:
    config = StoreConfig(segment_bytes=1 << 14, queue_segment_entries=20, index_slots=20, index_entries=80)
    with MessageStore.open(tmp_path / "store", config) as store:
        for number in range(200):
            store.append(Outgoing(topic="orders", body=b"", keys=f"k{number % 40} all", uniq_key=f"U{number}"))
    snapshot = Snapshot.open(tmp_path / "store")
    geometry = index_file.Geometry(config.index_slots, config.index_entries)
    assert rebuild_index(snapshot, tmp_path / "index", geometry=geometry) == 600
    written, made = (Index.open(path, geometry) for path in (tmp_path / "store" / "index", tmp_path / "index"))
    assert len(made.files()) == len(written.files()) == 8
    for key in ["all", *(f"k{number}" for number in range(40)), *(f"U{number}" for number in range(200))]:
        assert made.query("orders", key, 500) == written.query("orders", key, 500) != []
    for one, other in zip(made.files(), written.files(), strict=True):
        assert Path(one).read_bytes() == Path(other).read_bytes()
    with pytest.raises(ConfigError, match="Nothing is overwritten"):
        rebuild_index(snapshot, tmp_path / "index", geometry=geometry)
