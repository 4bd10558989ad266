"""Batches on a chain of three stores: no order of appends, failovers, kills and lags breaks a promise to readers."""

from collections.abc import Callable

import pytest

from segmentlog.store.format.batch_history import BatchHistory
from support.batch_protocol import Budget, Protocol, Store, Violation, begin, explore
from support.scale import scale

pytestmark = pytest.mark.attack

EVERYTHING = Budget(commits=4, messages=1, repeats=1, promotions=2, power_cuts=1, disconnects=1)
FAILOVERS = Budget(commits=4, messages=0, repeats=2, promotions=3, power_cuts=0, disconnects=2)
POWER_CUTS = Budget(commits=3, messages=2, repeats=1, promotions=2, power_cuts=3, disconnects=0)


@pytest.mark.scaled
@pytest.mark.parametrize("budget", [EVERYTHING, FAILOVERS, POWER_CUTS], ids=["everything", "failovers", "power cuts"])
def test_batches_are_whole_and_there_once_in_every_state(budget: Budget, report: Callable[[str, object], None]) -> None:
    states_max = scale(2_000, 50_000, 2_000_000)
    found = explore(Protocol(), begin(budget), states_max)
    report("states", found)
    assert found == states_max


class GreatestSequence(Protocol):
    """The store's own batches win if their numbers are greater, whatever master they are of."""

    def sent(self, store: Store) -> BatchHistory:
        own = BatchHistory().joined(store.ledger.thawed())
        found = [each for each in (own, store.history) if each.batches]
        return max(found, key=lambda each: each.batches[-1].entry.sequence, default=own)


class BoundedHistory(Protocol):
    """A master names its newest batch alone."""

    def sent(self, store: Store) -> BatchHistory:
        return BatchHistory(super().sent(store).batches[-1:])


class LateHistory(Protocol):
    """A replica learns of the batches with the connection, and of no later ones."""

    def received(self, replica: Store, master: Store) -> Store:
        return replica if replica.upstream is not None and replica.is_followed else super().received(replica, master)


class PartsAreKept(Protocol):
    """A promotion and a demotion cut where the log ends."""

    def part_start(self, store: Store, end: int) -> int:
        return end


class NothingIsHidden(Protocol):
    """Readers of a replica see all rows that it has."""

    def visible(self, store: Store) -> int:
        return len(store.log)


class LedgerStays(Protocol):
    """A store that is cut or promoted keeps the ledger that it had."""

    def settled(self, store: Store, end: int) -> Store:
        return super().settled(store, end)._replace(ledger=store.ledger)


@pytest.mark.parametrize(
    "planted", [GreatestSequence, BoundedHistory, LateHistory, PartsAreKept, NothingIsHidden, LedgerStays]
)
def test_a_planted_fault_is_found(planted: type[Protocol]) -> None:
    with pytest.raises(Violation) as found:
        explore(planted(), begin(FAILOVERS), 50_000)
    assert len(found.value.events) <= 12
