"""Opening of the store that a command line names."""

import argparse
from typing import TYPE_CHECKING

import segmentlog

if TYPE_CHECKING:
    from segmentlog.store import StoreReader


def opened(options: argparse.Namespace) -> "segmentlog.Store":
    """Open the store of `add_store`.

    Raises
    ------
    SegmentLogError
        As of ``segmentlog.open``.
    """
    return segmentlog.open(options.store, commit_log_paths=options.commit_log)


def reader_of(options: argparse.Namespace) -> "StoreReader":
    """Open the same store by the interface of the store, for what the Python API does not show.

    Raises
    ------
    SegmentLogError
        As of ``StoreReader.open``.
    """
    from segmentlog.store import StoreReader

    return StoreReader.open(options.store, commit_log_paths=options.commit_log)
