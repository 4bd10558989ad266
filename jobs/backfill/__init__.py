"""Backfill: messages of time windows as files or tables, each message once."""

from .files import Files, Layout
from .job import DEAD_LETTER_COLUMNS, Bodies, run
from .planning import Length, Part, Request, Target, Window, Written

__all__ = [
    "DEAD_LETTER_COLUMNS",
    "Bodies",
    "Files",
    "Layout",
    "Length",
    "Part",
    "Request",
    "Target",
    "Window",
    "Written",
    "run",
]
