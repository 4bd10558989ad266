"""Main function of the command: a verb found, run, and its end as an exit code.

::

    argv ──► catalogue ──► parser ──► verb.run ──► 0 found, 1 not found
                 │            │           │
                 └────────────┴───────────┴──► SegmentLogError, OSError ──► stderr, one shape     2
                                              KeyboardInterrupt         ──► nothing             130
                                              stdout has no reader      ──► nothing             141
"""

import gc
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise

import segmentlog
from segmentlog.store import SegmentLogError

from .catalogue import find_verb, help_text
from .console import Console, logged
from .errors import FAILED, FOUND, INTERRUPTED, PIPE_CLOSED, describe, error_text, is_sparks

_JSON_FORMATS = frozenset({"json", "jsonl"})
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_COLLECTED_OBJECTS = 100_000
"""New objects after which Python looks for garbage. Imports of a verb reach the default, 700, some hundred times."""


def process(*words: str) -> int:
    """Run the command line of this process, after some words; the entry point of the installed command and of jobs."""
    # These took a third of the time of a short verb: numpy's threads for linear algebra, garbage collections during
    # imports, and the last one at the exit of Python.
    sys.meta_path.insert(0, _WithoutPandas())
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it, and the next file that is opened would get its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends
    os.environ.setdefault(_BLAS_THREADS, "1")
    gc.set_threshold(_COLLECTED_OBJECTS, *gc.get_threshold()[1:])
    try:
        return main([*words, *sys.argv[1:]])
    finally:
        gc.freeze()


class _WithoutPandas:
    """Arrow imports pandas when it first converts a list, if pandas is installed: 250 ms, and no verb needs it."""

    def find_spec(self, fullname: str, /, *_: object) -> None:
        """Refuse pandas, and leave all other modules to the next finder."""
        if fullname == "pandas" and "pyspark" not in sys.modules:  # PySpark's mapInArrow does not start without pandas
            raise ModuleNotFoundError("pandas is not loaded by this command", name=fullname)


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Run one command line, by default that of this process; return its exit code. Errors are printed, not raised."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
    streams = Console.of_process() if console is None else console
    try:
        try:
            return _run(asked, streams)
        finally:
            streams.stdout.flush()
    except BrokenPipeError:
        if console is None:  # Python flushes stdout once more at exit, and would complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - every error has one shape and one exit code
        if not isinstance(error, SegmentLogError | OSError) and not is_sparks(error):
            streams.stderr.write("".join(traceback.format_exception(error)))
        streams.stderr.write(error_text(describe(error, asked), as_json=_asks_for_json(asked)))
        return FAILED


def _run(asked: list[str], console: Console) -> int:
    if not asked:
        console.stderr.write(help_text() + "\n")
        return FAILED
    name, *rest = asked
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in {"-h", "--help", "help"}:
        console.print(help_text())
        return FOUND
    if name == "--version":
        console.print(f"segmentlog {segmentlog.__version__}")
        return FOUND
    verb = find_verb(name)
    parser = verb.parser()
    if {"-h", "--help"} & set(rest[: rest.index("--")] if "--" in rest else rest):
        console.print(parser.format_help().rstrip("\n"))
        return FOUND
    with logged(console, logging.WARNING):
        return verb.run(parser.parse(rest), console)


def _asks_for_json(asked: Sequence[str]) -> bool:
    """Tell whether errors are JSON, also if the arguments could not be parsed."""
    if asked[:1] == ["backfill"]:  # its --output is the format of files
        return "--json" in asked
    formats = [after for flag, after in pairwise(asked) if flag in {"-o", "--output"}]
    formats += [each.partition("=")[2] for each in asked if each.startswith("--output=")]
    formats += [each.removeprefix("-o") for each in asked if each.startswith("-o")]
    return "--json" in asked or bool(_JSON_FORMATS.intersection(formats))
