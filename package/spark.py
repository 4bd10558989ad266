"""The Spark data source from Python: sessions, commits, lag.

::

    prepare_java(), prepare_workers(), register(spark)     before spark.read.format("segmentlog") …
    last_commit(path, app)                                 where the rows of a write are
    lag(path, group), LagListener                          the lag of consumers and streams
    find_by_keys(spark, path, frame)                       look-ups as a DataFrame

Importing this module does not import PySpark.
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
