"""The top of the package ``segmentlog``: its version, and nothing that takes time to import.

::

    segmentlog              this file, kept in package/
    segmentlog.store        store/         RocketMQ's message store
    segmentlog.connector    connector/     the Spark data source
    segmentlog.jobs         jobs/          commands

An ordinary package rather than a namespace. Python's zip importer finds a namespace only through directory entries,
which wheels do not have. ``spark-submit --py-files`` puts the wheel itself on ``sys.path``
(``docs/adr/0018-an-ordinary-package.md``).
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
"""The version of the distribution; ``pyproject.toml`` reads it from here."""
