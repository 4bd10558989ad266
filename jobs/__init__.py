"""Maintenance verbs of the command ``segmentlog``, by module: the same flags, output and exit codes.

::

    python -m segmentlog.jobs.verify STORE      =      segmentlog verify STORE

For machines on which the package is on ``sys.path`` and the command is not installed.
"""
