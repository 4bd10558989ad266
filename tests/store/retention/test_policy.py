"""Retention rules, one by one; `test_recorded` compares all of them with RocketMQ's own decisions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.files.fs import Space
from segmentlog.store.retention.policy import Disks, Plan, Verdict, decide, is_due, look_at_disks, used_share
from segmentlog.store.retention.settings import RetentionSettings, RocketMQRelease
from segmentlog.store.retention.state import (
    UNKNOWN_MS,
    FileId,
    FileKind,
    IndexFiles,
    LogFiles,
    Memory,
    Moment,
    QueueFiles,
    State,
    Unread,
)

NOW = 1_763_700_000_000
HOUR = 3_600_000
SIZE = 1000
EMPTY = Disks((Space(100, 90, 90),), Space(100, 90, 90))
AT_FOUR = Moment(NOW, 4)
AT_FIVE = Moment(NOW, 5)


def log(ages_h: list[float], held: tuple[int, ...] = ()) -> LogFiles:
    count = len(ages_h)
    modified = np.array([NOW - round(age * HOUR) for age in ages_h], np.int64)
    is_held = np.array([at in held for at in range(count)], np.bool_)
    return LogFiles(np.arange(count, dtype=np.int64) * SIZE, np.full(count, SIZE, np.int64), modified, is_held)


def state(files: LogFiles, memory: Memory | None = None) -> State:
    """Return a state whose queues and index have no files."""
    none, is_held = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    below = QueueFiles([], none, none, none, is_held), IndexFiles(none, none, is_held)
    return State(files, lambda _: below, 0, memory or Memory())


def decided(files: LogFiles, now: Moment = AT_FOUR, **settings: Any) -> Plan:
    return decide(state(files), now, EMPTY, RetentionSettings(**settings))


def names(plan: Plan) -> list[int]:
    return [each.file.base for each in plan.deletions if each.file.kind is FileKind.LOG]


def test_hours_are_read_as_java_reads_them() -> None:
    due = {"04": True, "4": True, "+4": True, "05": False, "03;04": True, "04;": True, "04;x": True, ";": False}
    due |= {"-4": False, "٤": True}  # Java reads digits of any script
    assert {text: is_due(text, 4) for text in due} == due
    for wrong in ("", "x;04", "03; 04", "03;;04", " 04", "04 ", "4.0", "99999999999"):
        with pytest.raises(ValueError, match="is not an hour"):
            is_due(wrong, 4)


@pytest.mark.parametrize(("limit", "gone"), [(None, 0), (5000, 0), (4999, 1), (4000, 1), (2500, 3), (1, 3)])
def test_a_limit_of_bytes_takes_the_oldest_segments_at_any_hour(limit: int | None, gone: int) -> None:
    plan = decided(log([1] * 5), AT_FIVE, log_bytes_max=limit, files_per_run=3)
    assert names(plan) == [SIZE * number for number in range(gone)]
    assert plan.log_start == gone * SIZE
    assert {each.reason for each in plan.deletions} <= {"above log_bytes_max"}


def test_a_byte_limit_counts_other_deletions_and_keeps_the_newest_and_unread_segments() -> None:
    for limit, reasons in ((2000, ["expired (time)"]), (1, ["expired (time)", "above log_bytes_max"])):
        assert [each.reason for each in decided(log([99, 1, 1]), log_bytes_max=limit).deletions] == reasons
    plan = decided(log([99, 1, 1], held=(0,)), AT_FIVE, log_bytes_max=1)
    assert not plan.deletions
    assert plan.memory.hung == {FileId(FileKind.LOG, 0): NOW}
    settings = RetentionSettings(protected_groups=("g",), log_bytes_max=SIZE)
    made = state(log([1, 1, 1, 1]))._replace(unread=lambda: Unread(SIZE, "unread"))
    assert names(decide(made, AT_FIVE, EMPTY, settings)) == [0]


PROTECTED = RetentionSettings(protected_groups=("g",), disk_max_used_percent=95)


def used(percent: int) -> Disks:
    return Disks((Space(100, 90, 90),), Space(100, 100 - percent, 100 - percent))


def guarded(plan_of: LogFiles, offset: int, *, percent: int = 10, memory: Memory | None = None) -> Plan:
    unread = Unread(offset, "group g has read T/0 up to offset 7")
    return decide(state(plan_of, memory)._replace(unread=lambda: unread), AT_FOUR, used(percent), PROTECTED)


def test_a_segment_that_a_protected_group_has_not_read_is_kept() -> None:
    files = log([100, 100, 100, 1])
    for offset, gone in ((4 * SIZE, 3), (2 * SIZE, 2), (2 * SIZE - 1, 1), (SIZE - 1, 0), (0, 0)):
        plan = guarded(files, offset)
        assert names(plan) == [at * SIZE for at in range(gone)], offset
        assert plan.log_start == gone * SIZE
        assert plan.wanted == ("" if gone == 3 else "unread: group g has read T/0 up to offset 7")
        assert not plan.disk_wins
        assert {each.reason for each in plan.deletions} <= {"expired (time)"}


def test_above_the_limit_unread_segments_are_deleted_with_that_reason() -> None:
    files, file = log([100, 100, 100, 1]), FileId(FileKind.LOG, 0)
    assert not guarded(files, SIZE, percent=85).disk_wins
    plan = guarded(files, SIZE, percent=86)
    assert plan.disk_wins
    assert plan.wanted == "unread: group g has read T/0 up to offset 7"
    note = ", unread: group g has read T/0 up to offset 7"
    assert [each.reason for each in plan.deletions] == ["expired (time, space)" + text for text in ("", note, note)]
    plan = guarded(files, 0, memory=Memory(hung={file: 5}))
    assert (plan.memory.hung, names(plan)) == ({file: 5}, []), "a kept segment that hung still hangs"


def test_guard_and_ages_are_asked_only_if_a_segment_is_due() -> None:
    def never(*_: object) -> Any:
        raise AssertionError("offsets or ages are read although no segment is due")

    made = state(log([1, 1]))._replace(unread=never, newest=never)
    assert not decide(made, AT_FOUR, EMPTY, PROTECTED).deletions
    assert not decide(made, AT_FOUR, EMPTY, AGED).deletions
    made = state(log([100, 1]))._replace(unread=never, newest=never)
    assert names(decide(made, AT_FOUR, EMPTY, RetentionSettings())) == [0]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("hard_limit_percent", percent) for percent in (-1, 101)),
        *(("min_age_ms", ages) for ages in ({"": 1}, {"a/b": 1}, {"orders": 0}, {"orders": -5})),
    ],
)
def test_settings_of_our_own_are_checked(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        RetentionSettings(**{name: wrong})


# -- minimum age per topic: newest message of the topics in each segment, by the age in ms of each

AGED = RetentionSettings(min_age_ms={"T": 5000, "U": 50}, disk_max_used_percent=95)


def aged(
    *of_t: int | None,
    u: int | None = None,
    settings: RetentionSettings = AGED,
    percent: int = 10,
    now: Moment = AT_FOUR,
) -> Plan:
    """Plan for expired segments, and a young one; ``of_t``: ages of T's newest message below the end of each."""
    ages = {("T", (at + 1) * SIZE): age for at, age in enumerate(of_t)} | {("U", 2 * SIZE): u}

    def newest(topic: str, stop: int) -> int | None:
        age = ages.get((topic, stop))
        return None if age is None else NOW - age

    made = state(log([100.0] * len(of_t) + [1.0]))._replace(newest=newest)
    return decide(made, now, used(percent), settings)


@pytest.mark.parametrize(
    ("of_t", "u", "gone"),
    [
        ((9000, 8000, 5000), None, 3),  # of exactly the age it is old enough
        ((9000, 8000, 4999), None, 2),
        ((9000, 4999, 1), None, 1),
        ((4999, 4000, 1), None, 0),
        ((None, None, 5000), None, 3),
        ((None, None, 3), None, 2),
        ((9000, 8000, 7000), 49, 1),
        ((9000, 8000, 7000), 50, 3),
    ],
)
def test_a_segment_with_a_message_below_its_topics_minimum_age_is_kept(
    of_t: tuple[int | None, ...], u: int | None, gone: int
) -> None:
    plan = aged(*of_t, u=u)
    assert names(plan) == [SIZE * number for number in range(gone)]
    assert (plan.log_start, plan.disk_wins) == (gone * SIZE, False)
    assert {each.reason for each in plan.deletions} <= {"expired (time)"}
    assert plan.wanted.startswith("young: topic ") == (gone < 3)


def test_a_kept_message_is_named_and_of_unknown_age_young() -> None:
    young = "young: topic T has a message of 2025-11-21T04:39:55.001+00:00, and keeps messages for 5000 ms"
    assert aged(9000, 4999, 1).wanted == young
    made = state(log([100, 100, 1]))._replace(newest=lambda *_: UNKNOWN_MS)
    plan = decide(made, AT_FOUR, EMPTY, AGED)
    assert names(plan) == []
    assert "messages of unknown age" in plan.wanted


@pytest.mark.parametrize(
    "more", [{"log_bytes_max": 1}, {"disk_max_used_percent": 10}, {"force_percent": 30, "hard_limit_percent": 90}]
)
def test_a_minimum_age_holds_for_each_rule(more: dict[str, Any]) -> None:
    for of_t, gone in (((9000, 4999, 1), [0]), ((9000, 9000, 9000), [0, SIZE, 2 * SIZE])):
        assert names(aged(*of_t, settings=replace(AGED, **more), percent=80, now=AT_FIVE)) == gone


@pytest.mark.parametrize(
    ("offset", "gone", "why"), [(0, [], "unread"), (SIZE, [0], "unread"), (9 * SIZE, [0, SIZE], "young")]
)
def test_the_first_of_guard_and_minimum_age_counts(offset: int, gone: list[int], why: str) -> None:
    settings = replace(AGED, protected_groups=("g",))
    ages = {SIZE: 9000, 2 * SIZE: 8000, 3 * SIZE: 1}
    made = state(log([100, 100, 100, 1]))._replace(
        unread=lambda: Unread(offset, "by g"), newest=lambda topic, stop: NOW - ages[stop] if topic == "T" else None
    )
    plan = decide(made, AT_FOUR, EMPTY, settings)
    assert names(plan) == gone
    assert plan.wanted.startswith(why)


# Disk space rules, at and around each threshold


DISK_BYTES = 10_000


def space(used: float) -> Space:
    free = DISK_BYTES - round(used * DISK_BYTES)
    return Space(DISK_BYTES, free, free)


def test_shares_are_computed_as_each_release_does() -> None:
    shares = Space(1000, 250, 200)
    assert used_share(shares, RocketMQRelease.V4_9) == 0.75
    assert used_share(shares, RocketMQRelease.V5_1) == 0.79  # 750 of 950, rounded up
    assert used_share(Space(1000, 1000, 1000), RocketMQRelease.V5_3) == 0.0
    assert used_share(None, RocketMQRelease.V5_1) == used_share(Space(0, 0, 0), RocketMQRelease.V4_9) == -1


def test_the_emptiest_commit_log_disk_counts_and_a_disk_that_is_not_there_is_used_up() -> None:
    disks = Disks((space(0.95), space(0.30)), space(0.10))
    assert not look_at_disks(disks, 0, RetentionSettings(), disk_full=True).disk_full
    for missing in (Disks((None,), space(0.1)), Disks((space(0.1),), None)):
        found = look_at_disks(missing, 0, RetentionSettings(), disk_full=False)
        assert found == Verdict(delete=True, forced=False, disk_full=False)
    settings = RetentionSettings(brokers_per_disk=2)
    found = look_at_disks(Disks((None,), space(0.1)), 1, settings, disk_full=False)
    assert found == Verdict(delete=True, forced=True, disk_full=False)
