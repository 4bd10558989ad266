"""Pacing: pauses double up to a limit, and no second receives more than the rate."""

import random

from segmentlog.store.ha.pacing import FIRST_S, LONGEST_S, Backoff, TokenBucket


def test_pauses_double_and_are_spread() -> None:
    backoff = Backoff(random.Random(1))
    pauses = [backoff.next_s() for _ in range(12)]
    means = [min(FIRST_S * 2**each, LONGEST_S) for each in range(12)]
    assert all(mean / 2 <= pause <= mean * 1.5 for pause, mean in zip(pauses, means, strict=True))
    assert len({pause / mean for pause, mean in zip(pauses, means, strict=True)}) == 12
    backoff.reset()
    assert backoff.next_s() <= FIRST_S * 1.5


def test_no_more_than_the_rate_is_received() -> None:
    bucket, now, received = TokenBucket(1000, 0.0), 0.0, 0
    for _ in range(1000):
        size = bucket.allowed(300, now)
        bucket.take(size)
        received += size
        now += bucket.wait_s(300) + 0.001
    assert 1000 * (now - 1) <= received <= 1000 * (now + 1)
    assert now > 100


def test_a_large_piece_waits_for_a_second_at_most() -> None:
    bucket = TokenBucket(1000, 0.0)
    bucket.take(bucket.allowed(1 << 20, 0.0))
    assert bucket.wait_s(1 << 20) == 1.0
    assert bucket.allowed(1 << 20, 50.0) == 1000


def test_without_a_rate_nothing_waits() -> None:
    bucket = TokenBucket(None, 0.0)
    bucket.take(1 << 40)
    assert bucket.allowed(1 << 20, 0.0) == 1 << 20
    assert bucket.wait_s(1 << 20) == 0.0
