"""Disk space rules, at and around each threshold."""

import pytest

from segmentlog.store.files.fs import Space
from segmentlog.store.retention.disk_space import (
    Disks,
    Verdict,
    is_full_after_check,
    look_at_disks,
    used_share,
)
from segmentlog.store.retention.settings import RetentionSettings, RocketMQRelease

SIZE = 10_000


def space(used: float) -> Space:
    free = SIZE - round(used * SIZE)
    return Space(SIZE, free, free)


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


def test_4_clears_what_the_log_disk_set_if_only_young_files_could_go() -> None:
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
