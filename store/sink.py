"""Batch commits of a data sink: tasks stage rows beside the store, one process commits all of them at once.

::

    tasks     Staging.open(path, …) ──► Staged          one file per task, in .segmentlog/staging
    driver    prepare_store ──► commit_batch(path, …, [Staged, …]) ──► CommittedBatch
              discard_jobs, sweep_staging               files of failed attempts
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
