"""RocketMQ store directories as a Spark data source. Start here.

::

    spark.read.format("segmentlog").option("subscribe", "orders").load("/data/store")
    frame.write.format("segmentlog").mode("append").option("topic", "orders").save("/data/store")

Both work without registration where Spark's Python workers run an interpreter that has this package. `register` is for
the other cases, and for writes from threads. Importing this module does not import PySpark.
"""

from segmentlog.doors import lazy_names

from .setup.workers import log_in_worker

log_in_worker()

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
