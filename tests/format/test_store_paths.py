from pathlib import Path

from segmentlog.store import MessageStore, Outgoing, QueueKey
from segmentlog.store.format import store_paths
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.groups import commit_offsets

KEY = QueueKey("Orders", 3)
PROPERTIES = [name for name, value in vars(StorePaths).items() if isinstance(value, store_paths._Path)]


def test_a_store_has_no_file_outside_of_its_paths(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    paths = StorePaths(root)
    with MessageStore.open(root) as store:
        store.append(Outgoing(topic=KEY.topic, body=b"x", queue_id=KEY.queue_id, keys="k"))
        while_open = {str(path) for path in Path(root).rglob("*") if path.is_file()}
    commit_offsets(root, "g", {KEY: 1})
    found = {str(path) for path in Path(root).rglob("*") if path.is_file()}
    assert paths.abort in while_open - found
    directories = (paths.commit_log, paths.consume_queue(KEY), paths.index)
    assert all(any(name.startswith(f"{directory}/") for name in found) for directory in directories)
    named = {getattr(paths, name) for name in PROPERTIES}
    assert {name for name in found - named if not name.startswith(tuple(f"{each}/" for each in directories))} == set()
    assert {paths.checkpoint, paths.lock, paths.store_id, paths.durable_point, paths.topics} <= found
    assert {paths.consumer_offsets, paths.group_positions, paths.group_mutex} <= found


def test_no_two_things_share_a_path_and_without_a_root_paths_are_relative() -> None:
    paths = [getattr(StorePaths("/s"), name) for name in PROPERTIES]
    assert len(set(paths)) == len(paths) > 20
    assert all(path.startswith("/s/") for path in paths)
    assert StorePaths("").durable_point == ".segmentlog/durable"
    assert StorePaths("").consume_queue(KEY) == "consumequeue/Orders/3"
