import json
import logging
from functools import partial
from pathlib import Path

import pytest

from segmentlog.store import Boundary, ConfigError, MessageStore, NotAStoreError, Outgoing, QueueKey, UnknownQueueError
from segmentlog.store.groups import MessageModel, Move, ToEarliest, ToLatest, ToOffset, ToTime, group_offsets
from segmentlog.store.groups.admin import (
    ResetTarget,
    clone_group,
    commit_offsets,
    delete_group,
    list_groups,
    publish_progress,
    reset_group,
)
from segmentlog.store.groups.writer import GroupWriter, Recorded
from support.written_stores import SMALL

T0, T1, U0 = QueueKey("T", 0), QueueKey("T", 1), QueueKey("U", 0)
START_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Ten messages in T/0, one a second, two in T/1, one in U/0."""
    moment = iter(range(START_MS, START_MS + 1_000_000, 1000))
    now = [START_MS]
    with MessageStore.open(tmp_path / "store", SMALL, clock=lambda: now[0]) as made:
        for queue, count in ((T0, 10), (T1, 2), (U0, 1)):
            for _ in range(count):
                now[0] = next(moment)
                made.append(Outgoing(topic=queue.topic, queue_id=queue.queue_id, body=b"x"))
    return str(tmp_path / "store")


def offsets(path: str, group: str = "g") -> dict[QueueKey, int]:
    return group_offsets(path, group)


def test_published_positions_only_go_forward(path: str) -> None:
    publish_progress(path, "g", {T0: 5, T1: 2})
    publish_progress(path, "g", {T0: 3, U0: 1})
    assert offsets(path) == {T0: 5, T1: 2, U0: 1}
    publish_progress(path, "h", {T0: 0})
    assert offsets(path, "h") == {T0: 0}  # at the beginning, which is not the same as unknown


def test_committed_positions_go_anywhere(path: str) -> None:
    publish_progress(path, "g", {T0: 5, T1: 2})
    change = commit_offsets(path, "g", {T0: 3, U0: 1})
    assert change.moves == (Move(T0, 5, 3), Move(U0, None, 1))
    assert change.recorded is Recorded.STORE
    assert offsets(path) == {T0: 3, T1: 2, U0: 1}
    assert commit_offsets(path, "g", {T0: 3}).recorded is Recorded.NOWHERE


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (ToEarliest(), {T0: 0, T1: 0}),
        (ToLatest(), {T0: 10, T1: 2}),
        (ToTime(START_MS + 4500), {T0: 5, T1: 0}),
        (ToTime(START_MS + 4500, Boundary.UPPER), {T0: 4, T1: 0}),
        (ToTime(START_MS + 10_500), {T0: 10, T1: 1}),
        (ToOffset(1), {T0: 1, T1: 1}),
        (ToOffset(7), {T0: 7, T1: 2}),
    ],
    ids=str,
)
def test_a_reset_moves_all_queues_of_the_group(path: str, to: ResetTarget, expected: dict[QueueKey, int]) -> None:
    publish_progress(path, "g", {T0: 8})
    asked = reset_group(path, "g", to, dry_run=True)
    assert asked.recorded is Recorded.NOWHERE
    assert offsets(path) == {T0: 8}
    done = reset_group(path, "g", to)
    assert done.moves == asked.moves == (Move(T0, 8, expected[T0]), Move(T1, None, expected[T1]))
    assert offsets(path) == expected


def test_a_reset_may_name_topics(path: str) -> None:
    publish_progress(path, "g", {T0: 8})
    assert reset_group(path, "g", ToLatest(), topics=["U"]).moves == (Move(U0, None, 1),)
    assert offsets(path) == {T0: 8, U0: 1}
    with pytest.raises(UnknownQueueError, match="topic Nope is not in this store"):
        reset_group(path, "g", ToLatest(), topics=["Nope"])
    with pytest.raises(ConfigError, match=r"group h has no position in any topic.*Name the topics"):
        reset_group(path, "h", ToLatest())


def test_a_dry_run_leaves_no_trace(path: str) -> None:
    before = {each: each.stat().st_mtime_ns for each in Path(path).rglob("*")}
    reset_group(path, "g", ToLatest(), topics=["T"], dry_run=True)
    assert delete_group(path, "g", dry_run=True).moves == ()
    assert {each: each.stat().st_mtime_ns for each in Path(path).rglob("*")} == before


def test_a_clone_continues_from_the_same_positions(path: str) -> None:
    publish_progress(path, "g", {T0: 8, U0: 1})
    publish_progress(path, "h", {T0: 9, T1: 1})
    assert clone_group(path, "g", "h", dry_run=True).moves == (Move(T0, 9, 8), Move(U0, None, 1))
    assert offsets(path, "h") == {T0: 9, T1: 1}
    clone_group(path, "g", "h", topics=["T"])
    assert offsets(path, "h") == {T0: 8, T1: 1}
    clone_group(path, "g", "new")
    assert offsets(path, "new") == offsets(path, "g") == {T0: 8, U0: 1}
    with pytest.raises(ConfigError, match=r"group none has no position in any queue of topics T, V.*list_groups"):
        clone_group(path, "none", "h", topics=["V", "T"])


def test_a_deleted_group_is_forgotten(path: str) -> None:
    for group in ("g", "h"):
        publish_progress(path, group, {T0: 8, U0: 1})
        publish_progress(path, group, {T0: 3, U0: 1}, consumer="one")
    assert delete_group(path, "g", topics=["U"]).moves == (Move(U0, 1, None),)
    assert [dict(each.offsets) for each in list_groups(path) if each.group == "g"] == [{T0: 8}, {T0: 3}]
    assert delete_group(path, "g").recorded is Recorded.STORE
    assert {each.group for each in list_groups(path)} == {"h"}
    assert json.loads((Path(path) / "config/consumerOffset.json").read_text())["offsetTable"].keys() == {"T@h", "U@h"}


def test_broadcasting_consumers_have_positions_of_their_own(path: str) -> None:
    publish_progress(path, "g", {T0: 8})
    publish_progress(path, "g", {T0: 3}, consumer="10.0.0.1@DEFAULT")
    publish_progress(path, "g", {T0: 2, T1: 1}, consumer="10.0.0.1@DEFAULT")
    publish_progress(path, "g", {T0: 5}, consumer="10.0.0.2@DEFAULT")
    assert offsets(path) == {T0: 8}
    found = [(each.model, each.consumer, dict(each.offsets)) for each in list_groups(path)]
    assert found == [
        (MessageModel.CLUSTERING, None, {T0: 8}),
        (MessageModel.BROADCASTING, "10.0.0.1@DEFAULT", {T0: 3, T1: 1}),
        (MessageModel.BROADCASTING, "10.0.0.2@DEFAULT", {T0: 5}),
    ]


@pytest.mark.parametrize("group", ["", "a@b", "a b", "ä", "x" * 256, "a\n"])
def test_invalid_group_names_are_refused(path: str, group: str) -> None:
    for change in (
        lambda: publish_progress(path, group, {T0: 1}),
        lambda: reset_group(path, group, ToLatest(), topics=["T"]),
        lambda: clone_group(path, "g", group),
    ):
        with pytest.raises(ConfigError, match="cannot be a consumer group"):
            change()


@pytest.mark.parametrize(
    ("key", "offset"),
    [
        (T0, -1),
        (T0, 1 << 63),
        (QueueKey("T", -1), 0),
        (QueueKey("T", 1 << 31), 0),
        (QueueKey("a@b", 0), 0),
        (QueueKey("../x", 0), 0),
    ],
)
def test_invalid_positions_are_refused(path: str, key: QueueKey, offset: int) -> None:
    with pytest.raises(ConfigError):
        publish_progress(path, "g", {key: offset})
    assert list_groups(path) == []


def test_a_directory_without_a_store_is_an_error(tmp_path: Path) -> None:
    for call in (list_groups, partial(group_offsets, group="g"), partial(delete_group, group="g")):
        with pytest.raises(NotAStoreError, match="there is no such directory"):
            call(str(tmp_path / "missing"))


def test_a_consumer_needs_an_id(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a consumer's id"):
        publish_progress(path, "g", {T0: 1}, consumer="a\nb")


def test_resetting_a_group_of_a_running_broker_logs_a_warning(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(GroupWriter, "_is_anothers", lambda _: True)
    with caplog.at_level(logging.WARNING):
        publish_progress(path, "g", {T0: 4})
        assert not caplog.records  # each micro-batch would say it
        assert reset_group(path, "g", ToEarliest()).recorded is Recorded.SIDECAR
    assert "where our readers see them and a broker's consumers do not" in caplog.text
    assert offsets(path) == {T0: 0, T1: 0}
