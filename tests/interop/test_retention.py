"""Retention beside real RocketMQ: the same decisions on states that are generated now."""

import pytest

from support import oracle, retention_states
from support.crash.campaign import soak
from support.retention_states import ask_rocketmq, differences, generate, listed

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available())),
]

STATES = {"5.1.0": soak(20, 300), "4.9.1": soak(10, 100), "5.3.3": soak(10, 100)}
FIRST_SEED = 10_000
"""Other states than the recorded ones."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", STATES)
def test_rocketmq_deletes_the_same_files_in_the_same_order(version: str) -> None:
    cases = [generate(version, FIRST_SEED + number) for number in range(STATES[version])]
    outcomes = ask_rocketmq(cases, version)
    assert len(outcomes) == len(cases)
    found = [
        f"seed {FIRST_SEED + number}: {difference}"
        for number, (case, rounds) in enumerate(zip(cases, outcomes, strict=True))
        for difference in differences(case, rounds, version, listed(case.store))
    ]
    assert found == []
    assert any(each.log for rounds in outcomes for each in rounds)
    assert retention_states.RELEASES.keys() == set(oracle.VERSIONS)
