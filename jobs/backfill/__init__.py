"""Backfill: messages of time windows as files or tables, each message once."""

from segmentlog.query.parts import Part, Window, Written

from .files import Files, Layout
from .job import DEAD_LETTER_COLUMNS, Bodies, run
from .planning import Length, Request, Target

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
