"""Verb ``completion``: a script by which a shell completes verbs, flags, choices and files.

::

    source <(segmentlog completion bash)                                        in ~/.bashrc
    segmentlog completion zsh  > ~/.zfunc/_segmentlog                           in a directory of fpath
    segmentlog completion fish > ~/.config/fish/completions/segmentlog.fish

`shtab` writes it from the parsers of all verbs.
"""

import argparse
from typing import Final

from ..console import Console
from ..errors import FOUND
from ..parser import Parser, chosen

SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: Parser) -> None:
    parser.add_argument("shell", metavar="SHELL", type=chosen(SHELLS), help=" or ".join(SHELLS))


def run(options: argparse.Namespace, console: Console) -> int:
    import shtab

    from ..catalogue import VERBS

    root = argparse.ArgumentParser("segmentlog", add_help=False)
    verbs = root.add_subparsers()
    for verb in VERBS:
        parser = verb.parser()
        for action in parser.actions:
            if action.nargs != 0 and action.choices is None:
                action.complete = shtab.FILE  # type: ignore[attr-defined] # where shtab looks for it
        verbs.add_parser(verb.name, help=verb.summary, parents=[parser], add_help=False)
    console.print(shtab.complete(root, options.shell))
    return FOUND
