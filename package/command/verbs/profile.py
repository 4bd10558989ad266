"""Verb ``profile``: statistics of all messages, with plots.

::

    segmentlog profile STORE [TOPIC …] [--html FILE]
    segmentlog profile STORE --json | jq .tags

All messages are read; `stats` has numbers of topics from the ConsumeQueues alone.
"""

import argparse

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, add_store
from ..report import Report, print_report
from ..sessions import add_session, spark_of


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots and tables into a new file")
    add_session(parser, master=None)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.jobs import statistics
    from segmentlog.jobs.statistics_page import page_of
    from segmentlog.store import ConfigError

    from ..reading import known_topics, source_of

    topics = known_topics(source_of(options).open(), options.topic) if options.topic else ()

    def work() -> Report:
        with spark_of(options) as spark:
            found = statistics.run(
                spark,
                source_of(options),
                topics=topics,
                commit_log_paths=options.commit_log,
                processes=options.processes,
            )
        if options.html is not None:
            page = page_of(found, f"Messages of {options.store}")
            try:
                with open(options.html, "x", encoding="utf-8") as file:
                    file.write(page)
            except OSError as error:
                raise ConfigError(f"--html: {error.strerror}", path=options.html, fix="Name a new file") from None
        return Report.of(found)

    return print_report(work, options, console)
