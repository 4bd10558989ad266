"""Health: what a store says about its log, its last sync, its replicas and its disks; nothing is locked or walked."""

from typing import NamedTuple

from ..directory.own_state import read_checkpoint
from ..files.fs import Space, space_of
from ..format.store_paths import CHECKPOINT
from ..log.confirmed import find_confirmation
from ..read.snapshot import Snapshot


class Health(NamedTuple):
    """Facts of one look. Offsets are physical, times in ms since 1970; None is unknown."""

    log_start: int
    log_stop: int  # where the records end
    synced_ms: int | None  # store time of a record that was surely synced, by the checkpoint
    checkpoint_ms: int | None  # when the checkpoint was written
    confirmed: int | None  # below it all records are on the replicas that a master waits for
    disks: tuple[Space, ...]  # of the directories of the log


def health_of(snapshot: Snapshot) -> Health:
    """Look at the store of a reader, as of now."""
    fs = snapshot.location.fs
    written = next((each.modified_ms for each in fs.list_dir(snapshot.path) if each.name == CHECKPOINT), None)
    confirmation = find_confirmation(fs, snapshot.path)
    spaces = (space_of(directory) for directory in snapshot.log.directories)
    return Health(
        snapshot.log.min_offset,
        snapshot.readable_stop(),
        read_checkpoint(fs, snapshot.path).physic_timestamp or None,
        written,
        None if confirmation is None else confirmation.offset,
        tuple(space for space in spaces if space is not None),
    )
