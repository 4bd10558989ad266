"""Verb ``completion``: a script by which a shell completes verbs and flags.

::

    source <(segmentlog completion bash)                                        in ~/.bashrc
    segmentlog completion zsh  > ~/.zfunc/_segmentlog                           in a directory of fpath
    segmentlog completion fish > ~/.config/fish/completions/segmentlog.fish
"""

import argparse

from ..catalogue import VERBS
from ..completion import SCRIPTS
from ..console import Console
from ..errors import FOUND
from ..parser import Parser, chosen


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", metavar="SHELL", type=chosen(SCRIPTS), help=" or ".join(SCRIPTS))


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    console.print(SCRIPTS[options.shell]([verb.parser() for verb in VERBS]))
    return FOUND
