"""Limits of a trigger, and options that contradict each other."""

import pytest

from segmentlog.connector.errors import ConflictingOptionsError
from segmentlog.connector.options.option import Given, Mode
from segmentlog.connector.options.trigger import TRIGGER, TriggerLimits, trigger_limits


def test_without_options_there_is_no_limit() -> None:
    assert trigger_limits(Given({})) == TriggerLimits() == TriggerLimits(max_delay_ms=900_000)


def test_limits_are_those_of_the_options() -> None:
    given = Given({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "7", "maxTriggerDelay": "1s"})
    assert trigger_limits(given) == TriggerLimits(max_records=7, min_records=7, max_delay_ms=1000)


def test_a_batch_cannot_be_larger_than_it_may() -> None:
    with pytest.raises(ConflictingOptionsError, match=r"`minOffsetsPerTrigger` \(8\) is more than .* \(7\)"):
        trigger_limits(Given({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "8"}))


def test_all_of_them_are_for_streams() -> None:
    assert {option.mode for option in TRIGGER} == {Mode.STREAM}
