"""S1 on the real file system: processes are traced, and the power is cut at the calls that they made.

Each writes with several threads, the real lock and the service threads; ``strace`` says what it asked of the operating
system. No two runs are the same, so a finding names the folder with the trace: ``real_campaign.load`` judges it again.
"""

from pathlib import Path

import pytest

from support.crash.campaign import Tally
from support.crash.promises import BrokenPromiseError
from support.crash.real_campaign import cut_power, run
from support.crash.real_worker import BUGS, CONFIGS, Errand
from support.crash.states import Breadth
from support.scale import Report, sample, scale
from support.strace import WHY_NOT

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.attack,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there"),
]

TRIED = sample([*CONFIGS], 1)
SEEDS = scale(1, 1, 4)
SHARE = scale(1, 1, 10) / 100
"""Of all calls, so many are the last one."""
BREADTH = Breadth(exhaustive_bits=2, random_subsets=2, torn=2, per_point=2, mixed=2, seed=1)
FEW = Breadth(exhaustive_bits=0, random_subsets=0, torn=1, per_point=1, mixed=0, seed=1)


@pytest.mark.parametrize("config", TRIED)
def test_nothing_acknowledged_is_lost(config: str, tmp_path: Path, report: Report) -> None:
    tally = Tally()
    for seed in range(SEEDS):
        real = run(Errand(folder=str(tmp_path / str(seed)), config=config, seed=seed))
        assert real.concurrent, "threads did not get into each other's way"
        tally.add(cut_power(real, BREADTH, SHARE))
    report(f"S1 real, {config}", tally)
    assert tally.states >= scale(10, 50, 2_500)
    assert tally.distinct >= 0.9 * tally.states
    assert tally.after_promises >= 0.5 * tally.states
    assert min(tally.kept, tally.lost, tally.again) > 0


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_seen(bug: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenPromiseError):
        cut_power(run(Errand(folder=str(tmp_path / "run"), config="sync", seed=7, bug=bug)), FEW, share=0.15)
