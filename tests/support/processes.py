"""Processes of a session: of a program that was started with ``start_new_session``, and its children."""

import os
from pathlib import Path


def members(session: int) -> list[int]:
    """Return the processes of a session, zombies left out."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            state, _, _, its_session = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()[:4]
        except (OSError, ValueError):
            continue  # no process, or it has just ended
        if its_session == str(session) and state not in "ZX":
            found.append(int(entry))
    return found


def parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])
    except (OSError, ValueError):
        return 0
