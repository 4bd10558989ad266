"""Recovery decision: the physical offset at which the log of a store ends when it is opened.

::

    CommitLog   [rec][rec][rec][rec][rec]####[rec]000        examine: whole records side by side, up to the end
                           ▲         ▲  ▲     └ beyond       P; whole records beyond it
             durable.queues┘         │  └ P                  decide: refuse, or end the log at P
                         durable.log ┘                       repair: abort, durable point, zeros after P, queues, index

Below the durable point nothing can be torn: bytes that are wrong there were damaged later. Cutting them off would lose
the whole records after them, so the store is opened only if the caller asks for it. Beyond the point a crash may have
left anything. A store without one, a broker's, may end in a torn record, but not in damage before whole records.

Such a store is taken over once, with a walk over all of its log. Missing queue entries are written, wrong ones are
corrected. From then on opening costs what was not flushed. Each step can be done again: a crash in the middle
leads the next opening to the same decision. RocketMQ: ``CommitLog.recoverNormally``, ``recoverAbnormally``.
"""

import logging
from dataclasses import dataclass

from ..config import OnDamage
from ..directory.own_state import ELSEWHERE, early_end
from ..errors import DamagedLogError, Remedy
from ..format.durable_point import DurablePoint
from ..log.log_end import LogState

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """Findings and repairs of an open.

    Attributes
    ----------
    was_clean
        Whether the store had been closed.
    adopted
        Whether it had no durable point: it was a broker's, or new.
    log_end
        Physical offset where the log ends now.
    cut_records
        Whole records that were cut off, for ``OnDamage.CUT`` or because a crash left a hole before them.
    undone_from
        Physical offset where a batch began that was not finished; it was cut off, too. None if there was none.
    cut_bytes
        Bytes after the end that were not zero.
    dispatched_from
        Physical offset from which queues and index were made again.
    corrected
        Entries of queues that were missing or wrong.
    """

    was_clean: bool
    adopted: bool
    log_end: int
    cut_records: int
    undone_from: int | None
    cut_bytes: int
    dispatched_from: int
    corrected: int

    def log(self, path: str) -> None:
        """Log the repairs, if there were any."""
        if self.cut_bytes:
            _log.warning(
                "%s: the log ends at %d; %d bytes after it were cut off, %d whole records among them",
                path,
                self.log_end,
                self.cut_bytes,
                self.cut_records,
            )
        if self.corrected:  # as after any crash: entries reach the device after their records
            _log.info(
                "%s: the log ends at %d; %d queue entries were missing or wrong, and were derived from it",
                path,
                self.log_end,
                self.corrected,
            )


def check_flushed(state: LogState, flushed_ms: int, path: str) -> None:
    """Raise `DamagedLogError` if a log without damage ends before a record that its broker flushed.

    ``flushed_ms`` is the store time in the broker's checkpoint. A damaged record ends the log of a broker.
    """
    early = None if state.problem else early_end(state.newest, flushed_ms)
    if early is not None:
        raise DamagedLogError(
            early,
            path=path,
            offset=state.end,
            fix=f"{ELSEWHERE} Such a store is not written. Else copy the whole records with the job `salvage`",
            remedies=(Remedy.CUT_DAMAGE,),
        )


def decide(
    state: LogState, durable: DurablePoint | None, on_damage: OnDamage, path: str, undone_from: int | None = None
) -> int:
    """Return the physical offset where the log ends from now on; an unfinished batch begins at ``undone_from``."""
    # Damage where nothing can be torn is a DamagedLogError, unless the caller asked to cut it.
    floor = durable.log if durable is not None else 0
    if undone_from is not None:
        floor = min(floor, undone_from)
    lost = max(floor - state.end, 0)
    if on_damage is OnDamage.REFUSE and (lost or (durable is None and state.beyond)):
        why = f"{lost} bytes that were on the device come later" if lost else "whole records come later"
        raise DamagedLogError(
            f"the log is damaged: {state.problem or 'it ends too early'}; {why}, {state.beyond} whole records in all",
            path=path,
            offset=state.end,
            fix="Copy the whole records with the job `salvage`",
            remedies=(Remedy.CUT_DAMAGE,),
        )
    if floor == 0 and state.end == state.start:
        return 0  # no segment has a record yet, wherever the first one begins: the log is empty
    return state.end if undone_from is None else min(state.end, undone_from)
