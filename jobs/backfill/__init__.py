"""Backfill: messages of time windows as files or tables, each message once."""

from .bodies import DEAD_LETTER_COLUMNS, Bodies
from .files import Files, Layout
from .job import run
from .parts import Length, Part, Target, Window, Written
from .planning import Request

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
