"""Failures of Spark's own that a busy machine causes, told apart from failures of what is tested.

::

    JVM ── starts a Python worker ──► it has ten seconds to connect back     a constant in Spark 4.3
                                      else: "Python worker failed to connect back"

The query ends as if it had been stopped at that moment: nothing was asked of the source or the sink. A test that stops
queries counts it as one more stop, starts the query again, and compares all rows as ever.
"""

_SAID_BY_SPARK = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
)


def is_worker_timeout(error: BaseException | None) -> bool:
    """Tell whether a query ended because a Python worker did not start in time."""
    return error is not None and any(said in str(error) for said in _SAID_BY_SPARK)
