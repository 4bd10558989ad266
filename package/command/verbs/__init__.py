"""Verbs of the command, a module per heading of ``--help``: ``add_VERB(parser)`` and ``run_VERB(options, console)``."""
