"""The top of the package ``segmentlog``: its version, and ``segmentlog.open``, loaded when it is first used.

::

    segmentlog              this file, kept in package/
    segmentlog.api          package/api/   reading without Spark: what segmentlog.open returns
    segmentlog.store        store/         RocketMQ's message store
    segmentlog.query        query/         the decisions of a read: store, topics, positions, columns
    segmentlog.connector    connector/     the Spark data source
    segmentlog.jobs         jobs/          jobs on whole stores, on Spark or on one machine
    segmentlog.command      package/command/  the command ``segmentlog``

An ordinary package rather than a namespace. Python's zip importer finds a namespace only through directory entries,
which wheels do not have. ``spark-submit --py-files`` puts the wheel itself on ``sys.path``
(``docs/adr/0001-packages.md``).
"""

import logging

from segmentlog.doors import lazy_names

__version__ = "0.1.0"
"""The version of the distribution; ``pyproject.toml`` reads it from here."""

# A library prints nothing: records are for the handlers of the application, or of the command.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
