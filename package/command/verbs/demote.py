"""Verb ``demote``: a master that was replaced, made to follow the new one.

::

    segmentlog demote STORE --master HOST:10912 [--dry-run]

The part that was cut off is a store in .segmentlog/cut-EPOCH-START-STOP. The new master is only asked for its epochs.
"""

import argparse
from typing import TYPE_CHECKING

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, add_tls, tls_of
from ..report import Report, camel_case, print_report

if TYPE_CHECKING:
    from segmentlog.store.ha import Demotion


def add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", help="store directory of the former master; its writers have ended")
    parser.add_argument(
        "--master", metavar="HOST:PORT", required=True, help="address at which the new master is served to replicas"
    )
    add_tls(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be cut off")
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.store.ha import Address, demote

    def work() -> Report:
        master, dry_run = Address.parse(options.master), options.dry_run
        demoted = demote(options.store, master, tls=tls_of(options), dry_run=dry_run)
        document = {**camel_case(demoted), "dryRun": dry_run}
        return Report(_text(demoted, dry_run=dry_run), document, demoted.copy is not None)

    return print_report(work, options, console)


def _text(demoted: "Demotion", *, dry_run: bool) -> str:
    if demoted.copy is None:
        return f"{demoted.path}: nothing to cut off; it can follow the master of epoch {demoted.epoch}"
    done = "would be cut off, and copied to" if dry_run else "were cut off; a copy is"
    return (
        f"{demoted.path}: {demoted.stop - demoted.start} bytes from physical offset {demoted.start} on, which the "
        f"master of epoch {demoted.epoch} has not, {done} {demoted.copy}"
    )
