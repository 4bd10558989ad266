"""Parser of a verb's arguments: argparse, with errors of the one shape and suggestions, and the shared flags.

::

    cat /data/store orders --colums body
                           └ there is no flag `--colums`      Did you mean `--columns`?

argparse takes 10 ms to import, click 30 and typer 90; see ``docs/adr/0024-a-command-without-a-framework.md``.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from segmentlog.query.suggestions import did_you_mean, listing
from segmentlog.store import ConfigError

from .errors import UsageError

if TYPE_CHECKING:
    from segmentlog.store.ha import Address, Tls

Number = TypeVar("Number", int, float)
T = TypeVar("T")
_NEGATIVE: Final = re.compile(r"-\d.*", re.ASCII)
_MEANT: Final = {
    "--begin": "--from",
    "--end": "--to",
    "--filter": "--sql",
    "--head": "--number",
    "--limit": "--number",
    "--max": "--number",
    "--out": "--write",
    "--partition": "--queue",
    "--since": "--from",
    "--start": "--from",
    "--stop": "--to",
    "--timezone": "--tz",
    "--time-zone": "--tz",
    "--until": "--to",
    "--where": "--sql",
    "--zone": "--tz",
}
"""Flags of other programs, each with ours."""
_PLACES: Final = frozenset({"DIR", "DIR|URL", "DIRECTORY", "FILE", "PATH", "TAR", "TARGET"})
"""Flags' names for files and directories."""
_REMEDY: Final = "\0"
"""Separates problem and remedy in texts that pass through argparse. No argument can have this character."""


class Parser(argparse.ArgumentParser):
    """Arguments of one verb; ``summary`` is the first line of its help."""

    def __init__(self, verb: str, summary: str) -> None:
        super().__init__(
            prog=f"segmentlog {verb}",
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.verb = verb  # name of the verb
        self.summary = summary  # first line of its help
        self.shape = self.prog  # what has to be written

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Return the arguments and flags, in the order of the help."""
        return self._actions

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments after the verb; wrong arguments are a `UsageError`."""
        self.shape = self._shape()  # now: argparse changes its arguments while it parses them
        arguments = _joined(arguments)
        is_split = "--" in arguments
        self._check_flags(arguments[: arguments.index("--")] if is_split else arguments)
        # Intermixed: flags may stand between STORE and `TOPIC …`. It forgets the `--`, after which no word is a flag.
        parse = self.parse_known_args if is_split else self.parse_known_intermixed_args
        options, rest = parse(arguments)
        if rest:
            fix = f"Write `{self.shape}`; --help lists all flags"
            raise UsageError(f"unexpected argument `{rest[0]}`", fix=fix)
        return options

    def _check_flags(self, arguments: Sequence[str]) -> None:
        """Refuse unknown flags, before argparse complains of what is missing."""
        flags = [each for each in self._option_string_actions if each.startswith("--")]
        for word in arguments:
            flag = word.partition("=")[0]
            if flag.startswith("--") and flag not in flags:
                meant = _MEANT.get(flag)
                near = f"Did you mean `{meant}`? " if meant in flags else did_you_mean(flag, flags)
                fix = f"{near}The flags are {listing(flags, most=40)}"
                raise UsageError(f"there is no flag `{flag}`", fix=fix)

    def _check_value(self, action: argparse.Action, value: str) -> None:
        """Refuse a value that is not one of the choices of an argument, and an empty path: an unset variable."""
        if value == "" and (not action.option_strings or action.metavar in _PLACES):
            raise argparse.ArgumentError(action, f"the text is empty{_REMEDY}Pass a name, or `.` for this directory")
        if action.choices is not None and value not in action.choices:
            known = list(action.choices)
            fix = f"{did_you_mean(value, known)}The choices are {listing(known)}"
            raise argparse.ArgumentError(action, f"`{value}` is unknown{_REMEDY}{fix}")

    def error(self, message: str) -> NoReturn:
        problem, _, fix = message.removeprefix("argument ").partition(_REMEDY)
        raise UsageError(problem, fix=fix or f"Write `{self.shape}`; --help lists all flags")

    def _shape(self) -> str:
        """Return the verb, its arguments, and the flags that it requires."""
        words = [self.prog]
        for action in self._actions:
            name = action.metavar if isinstance(action.metavar, str) else (action.dest or "").upper()
            if not action.option_strings:
                words.append({"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name))
            elif action.required:
                words += [action.option_strings[-1], *([] if action.nargs == 0 else [name])]
        return " ".join(words)


def _joined(arguments: Sequence[str]) -> list[str]:
    """Write ``--from -1h`` as ``--from=-1h``: argparse takes ``-10`` for a value, but ``-1h`` for a flag."""
    found: list[str] = []
    for word in arguments:
        if _NEGATIVE.fullmatch(word) and found and found[-1].startswith("--") and "--" not in found:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def whole(text: str) -> int:
    """Parse an argument that is a whole number from 0 on."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 0 on")
    return int(text)


def above_zero(meaning: str, number: Callable[[str], Number]) -> Callable[[str], Number]:
    """Return a type of arguments: a number above 0; ``meaning`` says in errors what the text is not."""

    def parse(text: str) -> Number:
        try:
            found = number(text)
        except (ValueError, argparse.ArgumentTypeError):
            found = number("0")
        if not 0 < found < float("inf"):
            raise argparse.ArgumentTypeError(f"`{text}` is not {meaning}")
        return found

    return parse


seconds: Final = above_zero("a number of seconds above 0", float)


def size(text: str) -> int:
    """Parse an argument that is a number of bytes, as options of Spark are."""
    from segmentlog.connector.options import values

    try:
        return values.size("", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a size: write bytes, or such as 64m or 1g") from None


def duration_ms(text: str) -> int:
    """Parse an argument that is a duration, as options of Spark are."""
    from segmentlog.connector.options import values

    try:
        return values.duration_ms("", text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"`{text}` is not a duration{_REMEDY}{error.fix}") from None


def names(text: str) -> tuple[str, ...]:
    """Parse an argument that is a list of names between commas."""
    found = tuple(each.strip() for each in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"`{text}` has an empty name: write names between commas")
    return found


def add_map_topic(parser: argparse.ArgumentParser, default: str) -> None:
    """Add ``--map-topic``: a list of pairs of topics."""
    parser.add_argument(
        "--map-topic",
        metavar="TOPIC=TOPIC",
        action="append",
        default=[],
        type=_topic_pair,
        help=f"write messages of one topic to another; repeatable (default: {default})",
    )


def _topic_pair(text: str) -> tuple[str, str]:
    source, _, target = text.partition("=")
    if not source or not target or "=" in target:
        raise argparse.ArgumentTypeError(f"`{text}` is not a pair of topics: write such as '%DLQ%billing=orders'")
    return source, target


def assignment(
    meaning: str, example: str, *, prefix: str = "", is_secret: bool = False
) -> Callable[[str], tuple[str, str]]:
    """Return a type of arguments: a name, which begins with a prefix, and a value; a secret one is not in errors."""

    def parse(text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        if not (name and equals and name.startswith(prefix)):
            found = "this" if is_secret else f"`{text}`"
            raise argparse.ArgumentTypeError(f"{found} is not {meaning}: write such as {example}")
        return name, value

    return parse


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add ``STORE``, a directory, and ``--commit-log``: ``options.store`` and the list ``options.commit_log``."""
    parser.add_argument("store", metavar="STORE", type=directory, help="the broker's storePathRootDir, or a copy of it")
    add_commit_log(parser)


def directory(text: str) -> str:
    """Parse an argument that is a directory of this machine."""
    if "://" in text:
        fix = "Pass a directory. Of an archive: `segmentlog archive` has verify, ls and pull"
        raise argparse.ArgumentTypeError(f"`{text}` is a URL, and this verb takes a directory alone{_REMEDY}{fix}")
    return text


def add_store(parser: argparse.ArgumentParser, *, or_pattern: bool = False) -> None:
    """Add ``STORE``, a directory or a URL, ``--commit-log``, and the flags of `add_storage`."""
    several = "; 's3://bucket/prefix/*' is all stores that match" if or_pattern else ""
    help_text = f"the broker's storePathRootDir, a copy of it, or the URL of an archive{several}"
    parser.add_argument("store", metavar="STORE", help=help_text)
    add_commit_log(parser)
    add_storage(parser)


def add_storage_options(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add ``--storage``: a list of pairs."""
    parser.add_argument(
        "--storage",
        metavar="NAME=VALUE",
        type=assignment("an option of an object store", "aws_region=eu-west-1", is_secret=True),
        action="append",
        default=[],
        help=help_text,
    )


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add ``--storage`` and ``--cache-dir``: a list of pairs, and a directory or None."""
    add_storage_options(parser, "an option of the object store, if STORE is a URL; repeatable")
    parser.add_argument(
        "--cache-dir",
        metavar="DIR",
        help="directory for bytes of object stores, or none (default: segmentlog/objects in the user's cache)",
    )


def add_commit_log(parser: argparse.ArgumentParser) -> None:
    """Add ``--commit-log``: a list of directories, empty if the flag is not passed."""
    parser.add_argument(
        "--commit-log",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory of CommitLog segments, if not STORE/commitlog; repeatable",
    )


def add_queue_segment_entries(parser: argparse.ArgumentParser) -> None:
    """Add ``--queue-segment-entries``: a number, None if the flag is not passed."""
    parser.add_argument(
        "--queue-segment-entries",
        metavar="N",
        type=whole,
        help="entries in a file of a queue, the broker's mappedFileSizeConsumeQueue / 20 (default: the store's own, "
        "else 300000)",
    )


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add ``--tls``, for `tls_of`."""
    parser.add_argument(
        "--tls",
        nargs=3,
        metavar=("CERTIFICATE", "KEY", "AUTHORITY"),
        help="mutual TLS with peers of segmentlog: three PEM files",
    )


def tls_of(options: argparse.Namespace) -> "Tls | None":
    """Return the files of ``--tls``, None if it is not passed."""
    from segmentlog.store.ha import Tls

    if options.tls is None:
        return None
    certificate, key, authority = options.tls
    return Tls(certificate=certificate, key=key, authority=authority)


@contextmanager
def listening(address: "Address") -> Iterator[None]:
    """Name ``--listen`` in the error of a socket that cannot be opened at its address."""
    try:
        yield
    except OSError as error:
        problem = f"--listen: nothing can listen at {address}: {error.strerror or error}"
        raise UsageError(problem, fix="Pass an address of this machine, and a port that is free") from None


def typed(parse: Callable[[str], T]) -> Callable[[str], Any]:
    """Return a parser of text as a type of arguments: its `ConfigError` names the argument."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(_REMEDY.join(filter(None, [error.problem, error.fix]))) from None

    return convert
