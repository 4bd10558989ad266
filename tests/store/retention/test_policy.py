"""Retention rules, one by one; `test_recorded` compares all of them with RocketMQ's own decisions."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.files.fs import Space
from segmentlog.store.retention.policy import (
    Disks,
    Plan,
    Verdict,
    decide,
    is_due,
    is_full_after_check,
    look_at_disks,
    used_share,
)
from segmentlog.store.retention.settings import RetentionSettings, RocketMQRelease
from segmentlog.store.retention.state import (
    UNKNOWN_MS,
    FileId,
    IndexFiles,
    Kind,
    LogFiles,
    Memory,
    Moment,
    QueueFiles,
    State,
    Unread,
)
from segmentlog.store.types import QueueKey

NOW = 1_763_700_000_000
HOUR = 3_600_000
SIZE = 1000
EMPTY = Disks((Space(100, 90, 90),), Space(100, 90, 90))
FULL = Disks((Space(100, 5, 5),), Space(100, 90, 90))
AT_FOUR = Moment(NOW, 4)
AT_FIVE = Moment(NOW, 5)


def log(ages_h: list[float], held: tuple[int, ...] = ()) -> LogFiles:
    count = len(ages_h)
    modified = np.array([NOW - round(age * HOUR) for age in ages_h], np.int64)
    is_held = np.array([at in held for at in range(count)], np.bool_)
    return LogFiles(np.arange(count, dtype=np.int64) * SIZE, np.full(count, SIZE, np.int64), modified, is_held)


def queues(*of: list[int], held: tuple[int, ...] = ()) -> QueueFiles:
    """Files of queues T/0, T/1, …: the last physical offset of each file but the last, whose own is no matter."""
    rows = [(queue, at * 100, physical) for queue, files in enumerate(of) for at, physical in enumerate([*files, -1])]
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    is_held = np.array([row in held for row in range(len(rows))], np.bool_)
    return QueueFiles([QueueKey("T", queue) for queue in range(len(of))], *columns[:3], is_held)  # type: ignore[call-arg]


def index(*ends: int, held: tuple[int, ...] = ()) -> IndexFiles:
    count = len(ends)
    is_held = np.array([at in held for at in range(count)], np.bool_)
    return IndexFiles(np.arange(count, dtype=np.int64), np.array(ends, np.int64), is_held)


def state(
    files: LogFiles,
    memory: Memory | None = None,
    below: Callable[[int], tuple[QueueFiles, IndexFiles]] = lambda _: (queues(), index()),
) -> State:
    return State(files, below, 0, memory or Memory())


def names(plan: Plan, kind: Kind = Kind.LOG) -> list[int]:
    return [each.file.base for each in plan.deletions if each.file.kind is kind]


@pytest.mark.parametrize(
    ("delete_when", "expected"),
    [
        ("04", True),
        ("4", True),
        ("+4", True),
        ("05", False),
        ("03;04", True),
        ("04;", True),
        ("04;x", True),
        (";", False),
        ("-4", False),
        ("٤", True),  # Java reads digits of any script
    ],
)
def test_hours_are_read_as_java_reads_them(delete_when: str, expected: bool) -> None:
    assert is_due(delete_when, 4) is expected


@pytest.mark.parametrize("delete_when", ["", "x;04", "03; 04", "03;;04", " 04", "04 ", "4.0", "99999999999"])
def test_a_wrong_hour_before_the_match_skips_the_log(delete_when: str) -> None:
    with pytest.raises(ValueError, match="is not an hour"):
        is_due(delete_when, 4)
    below = (queues([500]), index())
    held = Memory(manual_left=3, disk_full=True, hung={})
    plan = decide(
        state(log([99, 99])._replace(base=np.array([SIZE, 2 * SIZE])), held, lambda _: below),
        AT_FOUR,
        FULL,
        RetentionSettings(delete_when=delete_when),
    )
    assert plan.failure
    assert (plan.time_up, plan.space_short, names(plan)) == (None, None, [])
    assert (plan.memory.manual_left, plan.memory.disk_full, plan.memory.retried_ms) == (3, True, 0)
    assert names(plan, Kind.QUEUE) == [0]


@pytest.mark.parametrize(("early_ms", "gone"), [(0, [0]), (1, [])])
def test_a_segment_expires_to_the_millisecond(early_ms: int, gone: list[int]) -> None:
    plan = decide(state(log([72, 1])), Moment(NOW - early_ms, 4), EMPTY, RetentionSettings())
    assert names(plan) == gone
    assert plan.log_start == SIZE * len(gone)


def test_nothing_starts_a_run_at_another_hour() -> None:
    plan = decide(state(log([99, 99, 99])), AT_FIVE, EMPTY, RetentionSettings())
    assert not plan.deletions
    assert (plan.time_up, plan.space_short, plan.manual) == (False, False, False)


def test_the_first_young_segment_ends_the_run_and_the_newest_stays() -> None:
    assert names(decide(state(log([99, 1, 99, 99])), AT_FOUR, EMPTY, RetentionSettings())) == [0]
    assert names(decide(state(log([99, 99, 99])), AT_FOUR, EMPTY, RetentionSettings())) == [0, SIZE]
    assert not decide(state(log([99])), AT_FOUR, FULL, RetentionSettings()).deletions
    assert decide(state(log([])), AT_FOUR, FULL, RetentionSettings()).log_start == -1


def test_a_full_disk_takes_young_segments_unless_that_is_disabled() -> None:
    plan = decide(state(log([1, 1, 1])), AT_FIVE, FULL, RetentionSettings())
    assert names(plan) == [0, SIZE]
    assert [each.reason for each in plan.deletions] == ["forced (space)"] * 2
    assert plan.memory.disk_full
    plan = decide(state(log([99, 1, 1])), AT_FIVE, FULL, RetentionSettings(force_enabled=False))
    assert names(plan) == [0]
    assert plan.deletions[0].reason == "expired (space)"
    assert plan.forced


@pytest.mark.parametrize(
    ("limit", "gone"),
    [(None, 0), (5000, 0), (4999, 1), (4000, 1), (2500, 3), (1, 3)],
)
def test_a_limit_of_bytes_takes_the_oldest_segments_at_any_hour(limit: int | None, gone: int) -> None:
    settings = RetentionSettings(log_bytes_max=limit, files_per_run=3)
    plan = decide(state(log([1] * 5)), AT_FIVE, EMPTY, settings)
    assert names(plan) == [SIZE * number for number in range(gone)]
    assert plan.log_start == gone * SIZE
    assert {each.reason for each in plan.deletions} <= {"above log_bytes_max"}


def test_a_byte_limit_counts_other_deletions_and_keeps_the_newest_segment() -> None:
    plan = decide(state(log([99, 1, 1])), AT_FOUR, EMPTY, RetentionSettings(log_bytes_max=2000))
    assert [each.reason for each in plan.deletions] == ["expired (time)"]
    plan = decide(state(log([99, 1, 1])), AT_FOUR, EMPTY, RetentionSettings(log_bytes_max=1))
    assert [each.reason for each in plan.deletions] == ["expired (time)", "above log_bytes_max"]
    plan = decide(state(log([99, 1, 1], held=(0,))), AT_FIVE, EMPTY, RetentionSettings(log_bytes_max=1))
    assert not plan.deletions
    assert plan.memory.hung == {FileId(Kind.LOG, 0): NOW}


def test_a_manual_trigger_starts_twenty_runs() -> None:
    memory = Memory().triggered()
    for left in range(19, -1, -1):
        plan = decide(state(log([1, 1]), memory), AT_FIVE, EMPTY, RetentionSettings())
        memory = plan.memory
        assert plan.manual
        assert memory.manual_left == left
    assert not decide(state(log([1, 1]), memory), AT_FIVE, EMPTY, RetentionSettings()).manual
    plan = decide(state(log([99, 1]), Memory().triggered()), AT_FOUR, EMPTY, RetentionSettings())
    assert plan.deletions[0].reason == "expired (time, manual)"


def test_a_run_has_a_limit() -> None:
    plan = decide(state(log([99] * 20)), AT_FOUR, EMPTY, RetentionSettings(files_per_run=3))
    assert names(plan) == [0, SIZE, 2 * SIZE]


def test_a_held_segment_ends_the_run_and_goes_after_its_time() -> None:
    settings = RetentionSettings()
    files = log([99, 99, 99], held=(0,))
    first = decide(state(files), AT_FOUR, EMPTY, settings)
    assert not names(first)
    assert first.memory.hung == {FileId(Kind.LOG, 0): NOW}
    assert first.log_start == SIZE  # as in RocketMQ: what cannot be read any more is not the log's start
    again = decide(state(files, first.memory), Moment(NOW + 119_999, 4), EMPTY, settings)
    assert not names(again)
    forced = decide(state(files, again.memory), Moment(NOW + 120_000, 4), EMPTY, settings)
    assert names(forced) == [0, SIZE]
    assert not forced.memory.hung


def test_a_hung_first_segment_is_tried_again_without_any_rule() -> None:
    hung = {FileId(Kind.LOG, 0): NOW - 5}
    files = log([1, 1])
    early = Memory(hung=hung, retried_ms=NOW - 120_000)
    assert not decide(state(files, early), AT_FIVE, EMPTY, RetentionSettings()).deletions
    plan = decide(state(files, Memory(hung=hung, retried_ms=NOW - 120_001)), AT_FIVE, EMPTY, RetentionSettings())
    assert [(each.file.base, each.reason) for each in plan.deletions] == [(0, "retried")]
    assert plan.memory.retried_ms == NOW
    assert plan.log_start == SIZE
    assert not decide(state(files, Memory(retried_ms=1)), AT_FIVE, EMPTY, RetentionSettings()).deletions


def test_queue_files_go_up_to_the_first_that_stays_and_never_the_last() -> None:
    below = (queues([500, 900, 1500, 800], [], [1000], [100], [999]), index())
    plan = decide(state(log([99, 1]), below=lambda _: below), AT_FOUR, EMPTY, RetentionSettings())
    found = [each.file for each in plan.deletions if each.file.kind is Kind.QUEUE]
    assert found == [
        FileId(Kind.QUEUE, 0, QueueKey("T", 0)),
        FileId(Kind.QUEUE, 100, QueueKey("T", 0)),
        FileId(Kind.QUEUE, 0, QueueKey("T", 3)),
        FileId(Kind.QUEUE, 0, QueueKey("T", 4)),
    ]


def test_a_held_queue_file_keeps_the_later_files_until_the_log_start_moves() -> None:
    settings = RetentionSettings()
    first = decide(
        state(log([99, 1]), below=lambda _: (queues([100, 200], [300], held=(0,)), index())), AT_FOUR, EMPTY, settings
    )
    assert [each.file.queue for each in first.deletions if each.file.queue] == [QueueKey("T", 1)]
    later = log([99, 1])._replace(base=np.array([SIZE, 2 * SIZE]))

    def asked(_: int) -> tuple[QueueFiles, IndexFiles]:
        raise AssertionError("the log's start did not move")

    second = decide(state(later, first.memory, asked), Moment(NOW + HOUR, 5), EMPTY, settings)
    assert not second.deletions
    files = queues([100, 5000], [300], held=(0,))
    third = decide(state(later, second.memory, lambda _: (files, index())), Moment(NOW + 60_000, 4), EMPTY, settings)
    assert names(third, Kind.QUEUE) == [0, 0]  # forced after a minute
    assert not third.memory.hung


def test_index_files_go_by_their_end_and_never_the_last() -> None:
    def deleted(*ends: int, held: tuple[int, ...] = ()) -> list[int]:
        found = (queues(), index(*ends, held=held))
        plan = decide(state(log([99, 1]), below=lambda _: found), AT_FOUR, EMPTY, RetentionSettings())
        return names(plan, Kind.INDEX)

    assert deleted(100, 999, 1000, 50) == [0, 1]
    assert deleted(100, 200) == [0]
    assert deleted(100) == []
    assert deleted() == []
    assert deleted(100, 200, 300, held=(1,)) == [0]


def test_the_force_level_starts_a_run_at_any_hour_except_in_4_9() -> None:
    disks = Disks((Space(100, 8, 8),), Space(100, 90, 90))
    settings = RetentionSettings(disk_max_used_percent=95)
    files = log([1, 1, 1])
    assert len(decide(state(files), AT_FIVE, disks, settings).deletions) == 2
    old = RetentionSettings(disk_max_used_percent=95, release=RocketMQRelease.V4_9)
    assert not decide(state(files), AT_FIVE, disks, old).deletions
    assert len(decide(state(files), AT_FOUR, disks, old).deletions) == 2


def test_a_decision_about_many_files_with_nothing_to_do() -> None:
    files = log([1] * 10_000)
    count = 50_000
    many = QueueFiles(
        [QueueKey("T", number) for number in range(count)],
        np.repeat(np.arange(count), 2),
        np.tile([0, 100], count),
        np.full(2 * count, 1 << 40),
        np.zeros(2 * count, np.bool_),
    )
    moved = files._replace(base=files.base + SIZE)
    plan = decide(state(moved, below=lambda _: (many, index(1 << 40, 1 << 41))), AT_FOUR, EMPTY, RetentionSettings())
    assert not plan.deletions


PROTECTED = RetentionSettings(protected_groups=("g",), disk_max_used_percent=95)


def guarded(plan_of: LogFiles, offset: int, *, used: int = 10, memory: Memory | None = None) -> Plan:
    unread = Unread(offset, "group g has read T/0 up to offset 7")
    disks = Disks((Space(100, 90, 90),), Space(100, 100 - used, 100 - used))
    return decide(state(plan_of, memory)._replace(unread=lambda: unread), AT_FOUR, disks, PROTECTED)


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
    files = log([100, 100, 100, 1])
    assert not guarded(files, SIZE, used=85).disk_wins
    plan = guarded(files, SIZE, used=86)
    assert plan.disk_wins
    assert plan.wanted == "unread: group g has read T/0 up to offset 7"
    note = ", unread: group g has read T/0 up to offset 7"
    assert [each.reason for each in plan.deletions] == ["expired (time, space)" + text for text in ("", note, note)]


def test_the_guard_is_asked_only_if_a_segment_is_due() -> None:
    def never() -> Unread:
        raise AssertionError("offsets are read although no segment is due")

    made = state(log([1, 1]))._replace(unread=never)
    assert not decide(made, AT_FOUR, EMPTY, PROTECTED).deletions
    made = state(log([100, 1]))._replace(unread=never)
    assert len(decide(made, AT_FOUR, EMPTY, RetentionSettings()).deletions) == 1


def test_a_segment_that_hung_and_is_kept_still_hangs() -> None:
    file = FileId(Kind.LOG, 0)
    plan = guarded(log([100, 100, 1]), 0, memory=Memory(hung={file: 5}))
    assert plan.memory.hung == {file: 5}
    assert names(plan) == []


def test_the_byte_limit_keeps_unread_segments() -> None:
    settings = RetentionSettings(protected_groups=("g",), log_bytes_max=SIZE)
    made = state(log([1, 1, 1, 1]))._replace(unread=lambda: Unread(SIZE, "unread"))
    assert names(decide(made, AT_FIVE, EMPTY, settings)) == [0]


@pytest.mark.parametrize("percent", [-1, 101])
def test_the_hard_limit_is_a_percentage(percent: int) -> None:
    with pytest.raises(ConfigError, match="hard_limit_percent is"):
        RetentionSettings(hard_limit_percent=percent)


# -- minimum age per topic: newest message of the topics in each segment, by the age in ms of each

AGED = RetentionSettings(min_age_ms={"T": 5000, "U": 50}, disk_max_used_percent=95)


def aged(
    *of_t: int | None, u: int | None = None, settings: RetentionSettings = AGED, used: int = 10, now: Moment = AT_FOUR
) -> Plan:
    """Plan for expired segments, and a young one; ``of_t``: ages of T's newest message below the end of each."""
    ages = {("T", (at + 1) * SIZE): age for at, age in enumerate(of_t)} | {("U", 2 * SIZE): u}

    def newest(topic: str, stop: int) -> int | None:
        age = ages.get((topic, stop))
        return None if age is None else NOW - age

    disks = Disks((Space(100, 90, 90),), Space(100, 100 - used, 100 - used))
    made = state(log([100.0] * len(of_t) + [1.0]))._replace(newest=newest)
    return decide(made, now, disks, settings)


def test_a_segment_with_a_message_below_its_topics_minimum_age_is_kept() -> None:
    assert names(aged(9000, 8000, 5000)) == [0, SIZE, 2 * SIZE]  # of exactly the age it is old enough
    assert names(aged(9000, 8000, 4999)) == [0, SIZE]
    assert names(aged(9000, 4999, 1)) == [0]
    assert names(aged(4999, 4000, 1)) == []
    assert names(aged(None, None, 5000)) == [0, SIZE, 2 * SIZE]
    assert names(aged(None, None, 3)) == [0, SIZE]
    assert names(aged(9000, 8000, 7000, u=49)) == [0]
    assert names(aged(9000, 8000, 7000, u=50)) == [0, SIZE, 2 * SIZE]


def test_a_minimum_age_reports_the_young_message_that_it_keeps() -> None:
    plan = aged(9000, 4999, 1)
    assert (
        plan.wanted == "young: topic T has a message of 2025-11-21T04:39:55.001+00:00, and keeps messages for 5000 ms"
    )
    assert not plan.disk_wins
    assert plan.log_start == SIZE
    assert [each.reason for each in plan.deletions] == ["expired (time)"]
    assert aged(9000, 8000, 7000).wanted == ""


def test_messages_of_unknown_age_are_young() -> None:
    made = state(log([100, 100, 1]))._replace(newest=lambda *_: UNKNOWN_MS)
    plan = decide(made, AT_FOUR, EMPTY, AGED)
    assert names(plan) == []
    assert "messages of unknown age" in plan.wanted


@pytest.mark.parametrize(
    "settings",
    [
        replace(AGED, log_bytes_max=1),
        replace(AGED, disk_max_used_percent=10),
        replace(AGED, force_percent=30, hard_limit_percent=90),
    ],
)
def test_a_minimum_age_holds_for_each_rule(settings: RetentionSettings) -> None:
    plan = aged(9000, 4999, 1, settings=settings, used=80, now=AT_FIVE)
    assert names(plan) == [0]
    assert names(aged(9000, 9000, 9000, settings=settings, used=80, now=AT_FIVE)) == [0, SIZE, 2 * SIZE]


def test_above_the_hard_limit_young_messages_are_deleted_with_that_reason() -> None:
    assert not aged(9000, 4999, 1, used=85).disk_wins
    plan = aged(9000, 4999, 1, used=86)
    assert plan.disk_wins
    assert names(plan) == [0, SIZE, 2 * SIZE]
    young = f", {plan.wanted}"
    assert plan.wanted.startswith("young: topic T has a message of ")
    assert [each.reason for each in plan.deletions] == ["expired (time, space)" + text for text in ("", young, young)]


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


def test_ages_are_asked_only_if_a_segment_is_due() -> None:
    def never(topic: str, stop: int) -> int | None:
        raise AssertionError(f"{topic} is looked for below {stop} although no segment is due")

    assert not decide(state(log([1, 1]))._replace(newest=never), AT_FOUR, EMPTY, AGED).deletions
    plan = decide(state(log([100, 1]))._replace(newest=never), AT_FOUR, EMPTY, RetentionSettings())
    assert names(plan) == [0]


@pytest.mark.parametrize("wrong", [{"": 1}, {"a/b": 1}, {"orders": 0}, {"orders": -5}])
def test_minimum_ages_are_of_topics_and_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="min_age_ms"):
        RetentionSettings(min_age_ms=wrong)


# Disk space rules, at and around each threshold


DISK_BYTES = 10_000


def space(used: float) -> Space:
    free = DISK_BYTES - round(used * DISK_BYTES)
    return Space(DISK_BYTES, free, free)


def look(
    log: float | None, queues: float | None, settings: RetentionSettings | None = None, *, full: bool = False
) -> Verdict:
    disks = Disks(
        (None if log is None else space(log),),
        None if queues is None else space(queues),
    )
    return look_at_disks(disks, 0, settings or RetentionSettings(), disk_full=full)


def test_shares_are_computed_as_each_release_does() -> None:
    shares = Space(1000, 250, 200)
    assert used_share(shares, RocketMQRelease.V4_9) == 0.75
    assert used_share(shares, RocketMQRelease.V5_1) == 0.79  # 750 of 950, rounded up
    assert used_share(Space(1000, 1000, 1000), RocketMQRelease.V5_3) == 0.0
    assert used_share(None, RocketMQRelease.V5_1) == -1
    assert used_share(Space(0, 0, 0), RocketMQRelease.V4_9) == -1


@pytest.mark.parametrize("release", [RocketMQRelease.V5_1, RocketMQRelease.V5_3])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.10, 0.10), (False, False, False)),
        ((0.75, 0.75), (False, False, False)),
        ((0.7501, 0.10), (True, False, False)),
        ((0.10, 0.76), (True, False, False)),
        ((0.85, 0.10), (True, False, False)),
        ((0.10, 0.86), (True, True, False)),
        ((0.10, 0.91), (True, True, True)),
        ((0.86, 0.10), (True, True, None)),  # None: as before
        ((0.87, 0.95), (True, True, None)),
        ((0.90, 0.95), (True, True, None)),
        ((0.9001, 0.10), (True, True, True)),
        ((None, 0.10), (True, False, False)),
        ((0.10, None), (True, False, False)),
    ],
)
def test_levels_of_5(
    release: RocketMQRelease,
    full: bool,
    shares: tuple[float | None, float | None],
    expected: tuple[bool, bool, bool | None],
) -> None:
    found = look(*shares, RetentionSettings(release=release), full=full)
    assert found == Verdict(*(full if each is None else each for each in expected))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.10, 0.10), (False, False, False)),
        ((0.7501, 0.10), (True, False, False)),
        ((0.86, 0.95), (True, True, None)),
        ((0.95, 0.10), (True, True, True)),
        ((0.10, 0.95), (True, True, True)),
        ((0.10, 0.86), (True, True, False)),  # the CommitLog's disk cleared it before
        ((None, 0.10), (True, False, False)),
    ],
)
def test_levels_of_4(
    full: bool, shares: tuple[float | None, float | None], expected: tuple[bool, bool, bool | None]
) -> None:
    found = look(*shares, RetentionSettings(release=RocketMQRelease.V4_9), full=full)
    assert found == Verdict(*(full if each is None else each for each in expected))


def test_4_9_clears_the_full_flag_of_the_log_disk_below_disk_max_used_percent() -> None:
    settings = RetentionSettings(release=RocketMQRelease.V4_9, disk_max_used_percent=95)
    assert look(0.92, 0.10, settings) == Verdict(delete=False, forced=True, disk_full=False)


def test_a_refusal_level_below_the_force_level_forces_too() -> None:
    settings = RetentionSettings(refuse_share=0.40)
    assert look(0.50, 0.10, settings) == Verdict(delete=True, forced=True, disk_full=True)
    assert look(0.10, 0.50, settings) == Verdict(delete=True, forced=True, disk_full=True)


def test_the_emptiest_commit_log_disk_counts() -> None:
    disks = Disks((space(0.95), space(0.30)), space(0.10))
    assert not look_at_disks(disks, 0, RetentionSettings(), disk_full=True).disk_full


@pytest.mark.parametrize(
    ("held", "expected"),
    [(3750, (False, False)), (3751, (True, False)), (4000, (True, False)), (4001, (True, True))],
)
def test_brokers_that_share_a_disk_each_have_a_share(held: int, expected: tuple[bool, bool]) -> None:
    settings = RetentionSettings(brokers_per_disk=2)
    found = look_at_disks(Disks((space(0.80),), space(0.80)), held, settings, disk_full=True)
    assert found == Verdict(*expected, disk_full=False)


def test_a_share_of_no_disk_is_used_up() -> None:
    settings = RetentionSettings(brokers_per_disk=2)
    found = look_at_disks(Disks((None,), space(0.1)), 1, settings, disk_full=False)
    assert found == Verdict(delete=True, forced=True, disk_full=False)


def test_4_checks_the_log_disk_once_more() -> None:
    settings = RetentionSettings(release=RocketMQRelease.V4_9)
    assert not is_full_after_check(Disks((space(0.10),), space(0.95)), settings, disk_full=True)
    assert is_full_after_check(Disks((space(0.95),), space(0.10)), settings, disk_full=False)
    assert is_full_after_check(Disks((space(0.10),), space(0.10)), RetentionSettings(), disk_full=True)
