"""Model of batches on a chain of three stores: every state that appends, failovers, kills and lags can lead to.

::

    state       three stores (log, history, ledger, epochs, upstream), the sink's last batch, and budgets of each event
    events      commit  repeat  message  connect  transfer 1 row or all  power cut  promote  demote  disconnect
    invariants  a reader of any store sees each batch as a whole or not at all
                no log has a row twice
                a commit that succeeds leaves batches 0 to n in the leader, each once

A row has one byte, a batch two rows. Decisions are those of the product: `BatchHistory`, `Ledger`, `find_replay`,
`Epochs` and `check_greeting`. The model adds the order in which the product calls them. `Protocol` has these calls, so
that a test can plant a wrong one.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from segmentlog.store import BatchGapError, BatchId, DivergedLogError, OnChangedReplay, ReplicationError
from segmentlog.store.format.batch_history import BatchHistory
from segmentlog.store.format.epochs import Epochs
from segmentlog.store.format.ledger import LOST, Application, Ledger, LedgerEntry
from segmentlog.store.ha.protocol import Greeting, check_greeting
from segmentlog.store.write.batch_commit import find_replay

APP: Final = "q"
ROWS: Final = 2
MESSAGE: Final = -1


class FrozenLedger(NamedTuple):
    """A ledger that can be a part of a key."""

    sequence: int = 0
    applications: tuple[tuple[str | None, Application], ...] = ()

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        return cls(ledger.sequence, tuple(sorted(ledger.applications.items(), key=str)))

    def thawed(self) -> Ledger:
        return Ledger(self.sequence, dict(self.applications))


class Row(NamedTuple):
    """A row of a log: of a batch, or a message, whose serial number is in ``index``."""

    batch: int
    index: int


class Store(NamedTuple):
    log: tuple[Row, ...] = ()  # its rows; the physical offset of one is its index
    # the file of the history: of a replica, that of its master; of a master, all batches but the newest
    history: BatchHistory = BatchHistory()
    ledger: FrozenLedger = FrozenLedger()  # ledger, epochs: its other records
    epochs: Epochs = Epochs()
    is_followed: bool = False  # whether it has followed a master since it was promoted or written
    upstream: int | None = None  # number of the store that it follows over a connection


class Budget(NamedTuple):
    commits: int
    messages: int
    repeats: int
    promotions: int
    power_cuts: int
    disconnects: int


class State(NamedTuple):
    """State of all stores, of the sink, and of the budgets; ``leader`` is the store that the sink writes to."""

    stores: tuple[Store, ...]
    leader: int
    done: int
    budget: Budget


class Protocol:
    """Calls of a store that change its records of batches, or depend on them."""

    def sent(self, store: Store) -> BatchHistory:
        """Return the history that the server of a store sends, after it looked at the end of the log."""
        return store.history if store.is_followed else store.history.joined(store.ledger.thawed())

    def committed(self, store: Store, entry: LedgerEntry) -> Store:
        ledger = store.ledger.thawed()
        extended = ledger.with_entry(APP, entry, ())
        return store._replace(history=store.history.joined(ledger), ledger=FrozenLedger.of(extended))

    def received(self, replica: Store, master: Store) -> Store:
        return replica._replace(history=self.sent(master), is_followed=True)

    def visible(self, store: Store) -> int:
        return store.history.whole_end(len(store.log)) if store.is_followed else len(store.log)

    def part_start(self, store: Store, end: int) -> int:
        """Return where a promotion or demotion cuts a log that it keeps up to ``end`` at most."""
        return self.sent(store).whole_end(end)

    def settled(self, store: Store, end: int) -> Store:
        """Return a store whose log was cut at ``end``, with the records of that log."""
        former, history = store.ledger.thawed(), self.sent(store)
        store = store._replace(log=store.log[:end])
        if not (store.is_followed or history.beyond(end) or former.beyond(end)):
            return store
        ledger = FrozenLedger.of(history.ledger_at(end, former))
        return store._replace(history=history.up_to(end), ledger=ledger, is_followed=False)


@dataclass
class Violation(Exception):  # noqa: N818 - it is a finding
    """A state that breaks an invariant, and the events that lead to it."""

    problem: str
    events: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.problem}: {' → '.join(self.events)}"


def begin(budget: Budget) -> State:
    """Return the first state: store 0 is the master, and the others are empty."""
    return State((Store(log=(Row(MESSAGE, 0),)), Store(), Store()), 0, -1, budget)


def explore(protocol: Protocol, start: State, states_max: int) -> int:
    """Visit states breadth first; return how many there were, at most ``states_max``."""
    came: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        moves = _moves(protocol, state)
        while True:
            try:
                event, after = next(moves)
                if after in came:
                    continue
                _check(protocol, after)
            except StopIteration:
                break
            except Violation as found:
                raise Violation(
                    found.problem, (*_way(came, state), found.events[0] if found.events else event)
                ) from None
            came[after] = state, event
            if len(came) >= states_max:
                return len(came)
            queue.append(after)
    return len(came)


def _way(came: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    events: list[str] = []
    while (step := came[state]) is not None:
        state, event = step
        events.append(event)
    return events[::-1]


def _check(protocol: Protocol, state: State) -> None:
    for number, store in enumerate(state.stores):
        rows = Counter(store.log)
        if max(rows.values(), default=0) > 1:
            raise Violation(f"store {number} has a row twice")
        seen = Counter(row.batch for row in store.log[: protocol.visible(store)] if row.batch != MESSAGE)
        if set(seen.values()) - {ROWS}:
            raise Violation(f"readers of store {number} see a part of a batch")


def _moves(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    numbers = range(len(state.stores))
    yield from _writes(protocol, state)
    for number in numbers:
        yield from _failover(protocol, state, number)
        yield from _transfers(protocol, state, number)
        for master in numbers:
            if number not in {master, state.leader}:
                yield from _connections(protocol, state, number, master)


def _with(state: State, number: int, store: Store, **spent: int) -> State:
    stores = (*state.stores[:number], store, *state.stores[number + 1 :])
    budget = state.budget._replace(**{name: getattr(state.budget, name) - count for name, count in spent.items()})
    return state._replace(stores=stores, budget=budget)


def _writes(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    store, budget = state.stores[state.leader], state.budget
    if budget.messages:
        row = Row(MESSAGE, budget.messages + 100 * state.leader)
        yield (
            f"message to {state.leader}",
            _with(state, state.leader, store._replace(log=(*store.log, row)), messages=1),
        )
    if budget.commits:
        yield from _commit(protocol, state, state.done + 1, "commit", commits=1)
    if budget.repeats and state.done >= 0:
        yield from _commit(protocol, state, state.done, "repeat", repeats=1)


def _commit(protocol: Protocol, state: State, number: int, name: str, **spent: int) -> Iterator[tuple[str, State]]:
    """Commit a batch as a stream does; after a gap it begins again with the first batch that the leader lacks."""
    leader, store = state.leader, state.stores[state.leader]
    event, ledger = f"{name} {number} to {state.leader}", store.ledger.thawed()
    try:
        identity = BatchId(APP, number, contiguous=True)
        epoch = store.epochs.newest
        repeated = find_replay(ledger, identity, ROWS, 0, on_changed=OnChangedReplay.FAIL, path="", epoch=epoch)
    except BatchGapError:
        known = ledger.applications.get(APP)
        done = -1 if known is None else known.newest.version - (known.newest.rows == LOST)
        yield f"{event}: a gap", state._replace(done=done)
        return
    after = store
    if repeated is None:
        end = len(store.log)
        entry = LedgerEntry(number, ledger.sequence + 1, end, end + ROWS, ROWS, ROWS, 0, 0)
        rows = tuple(Row(number, index) for index in range(ROWS))
        after = protocol.committed(store._replace(log=(*store.log, *rows)), entry)
    held = Counter(row.batch for row in after.log)
    missing = [each for each in range(number + 1) if held[each] != ROWS]
    if missing:
        raise Violation(f"store {leader} took batch {number}, and lacks {missing} or has them twice", (event,))
    yield event, _with(state, leader, after, **spent)._replace(done=max(state.done, number))


def _failover(protocol: Protocol, state: State, number: int) -> Iterator[tuple[str, State]]:
    store, budget = state.stores[number], state.budget
    if budget.promotions and number != state.leader:
        end = len(store.log)
        cut = protocol.settled(store, protocol.part_start(store, end))
        above = max(each.epochs.newest for each in state.stores)
        epochs = cut.epochs.promoted(len(cut.log), 1000 * number + budget.promotions, above=above)
        promoted = _with(state, number, cut._replace(epochs=epochs, upstream=None), promotions=1)
        yield f"promote {number}", promoted._replace(leader=number)
    if budget.power_cuts and store.is_followed and store.log:
        yield (
            f"power cut of {number}",
            _with(state, number, store._replace(log=store.log[:-1], upstream=None), power_cuts=1),
        )


def _transfers(protocol: Protocol, state: State, number: int) -> Iterator[tuple[str, State]]:
    store = state.stores[number]
    if store.upstream is None:
        return
    master = state.stores[store.upstream]
    if state.budget.disconnects:
        yield f"disconnect {number}", _with(state, number, store._replace(upstream=None), disconnects=1)
    if store.epochs != master.epochs:
        # The server drops replicas whose epochs are not its own, before it sends more.
        yield f"drop {number}", _with(state, number, store._replace(upstream=None))
        return
    end = len(store.log)
    for count in {1, len(master.log) - end} - {0}:
        if 0 < count <= len(master.log) - end:
            known = protocol.received(store, master)
            after = known._replace(log=master.log[: end + count])
            yield f"{number} gets {count} of {store.upstream}", _with(state, number, after)


def _connections(protocol: Protocol, state: State, number: int, master: int) -> Iterator[tuple[str, State]]:
    store, other = state.stores[number], state.stores[master]
    if store.upstream is not None or _leads_to(state, master, number):
        return
    greeting = Greeting(len(other.log), other.epochs)
    end = len(store.log)
    try:
        check_greeting(store.epochs, store.epochs.newest, end, greeting)
        if store.log == other.log[:end]:
            after = protocol.received(store._replace(epochs=other.epochs, upstream=master), other)
            yield f"{number} follows {master}", _with(state, number, after)
    except DivergedLogError:
        if greeting.epochs.newest > store.epochs.newest:
            parting = store.epochs.parting(greeting.epochs)
            start = protocol.part_start(store, min(end, end if parting is None else parting))
            cut = protocol.settled(store, start)._replace(epochs=greeting.epochs)
            yield f"demote {number} for {master}", _with(state, number, cut)
    except ReplicationError:
        return


def _leads_to(state: State, number: int | None, target: int) -> bool:
    while number is not None:
        if number == target:
            return True
        number = state.stores[number].upstream
    return False
