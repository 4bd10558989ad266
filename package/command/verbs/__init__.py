"""Verbs of the command, a module each: ``add_arguments(parser)`` and ``run(options, console)``."""
