"""What becomes of a store when it is opened: look, decide, then do it.

::

    CommitLog   [rec][rec][rec][rec][rec]####[rec]000        examine: whole records one behind the other, up to the end
                           ▲         ▲  ▲     └ beyond       P; what is whole beyond it
             durable.queues┘         │  └ P                  decide: refuse, or end the log at P
                         durable.log ┘                       repair: abort, durable point, zeros behind P, queues, index

Below the durable point nothing can be torn: what is wrong there was damaged since, and cutting it off would lose whole
records behind it, so the store is not opened unless the caller says so. Beyond it a crash may have left anything. A
store without a durable point, a broker's, may end in a torn record, but not in damage with whole records behind.

Such a store is taken over once, with a walk over all of its log: entries that its queues lack are written, those that
are wrong corrected. From then on opening costs what was not flushed. Each step can be done again: a crash in the middle
leaves what the next opening decides the same about. RocketMQ: ``CommitLog.recoverNormally``, ``recoverAbnormally``.
"""

import logging
from dataclasses import dataclass

from ..config import OnDamage
from ..errors import DamagedLogError, Remedy
from ..format.durable_point import DurablePoint
from ..log.log_end import LogState

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """What opening a store found and did.

    Attributes
    ----------
    was_clean
        Whether the store had been closed.
    adopted
        Whether it had no durable point: it was a broker's, or nobody's.
    log_end
        Physical offset where the log ends now.
    cut_records
        Whole records that were cut off, for ``OnDamage.CUT`` or because a crash left a hole in front of them.
    undone_from
        Physical offset where a batch began that was not finished; it was cut off, too. None if there was none.
    cut_bytes
        Bytes behind the end that were not zero.
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
        """Say in the log what was done, if that was anything."""
        if self.cut_bytes or self.corrected:
            _log.warning(
                "%s: the log ends at %d; %d bytes behind it were cut off, %d whole records among them; "
                "%d queue entries were missing or wrong",
                path,
                self.log_end,
                self.cut_bytes,
                self.cut_records,
                self.corrected,
            )


def decide(
    state: LogState, durable: DurablePoint | None, on_damage: OnDamage, path: str, undone_from: int | None = None
) -> int:
    """Say where the log ends from now on.

    Parameters
    ----------
    undone_from
        Physical offset from which a batch lies in the log that was not finished; see `batch_append`.

    Returns
    -------
    int
        A physical offset.

    Raises
    ------
    DamagedLogError
        If the log is damaged where nothing can be torn, and the caller did not ask to cut it.
    """
    floor = durable.log if durable is not None else 0
    if undone_from is not None:
        floor = min(floor, undone_from)
    lost = max(floor - state.end, 0)
    if on_damage is OnDamage.REFUSE and (lost or (durable is None and state.beyond)):
        why = f"{lost} bytes that were on the device lie beyond" if lost else "whole records lie beyond"
        raise DamagedLogError(
            f"the log is damaged: {state.problem or 'it ends too early'}; {why}, {state.beyond} whole records in all",
            path=path,
            offset=state.end,
            fix="Copy what is whole with the job `salvage`",
            remedies=(Remedy.CUT_DAMAGE,),
        )
    return state.end if undone_from is None else min(state.end, undone_from)
