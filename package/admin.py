"""Administration of stores: checks and repairs, retention, consumer groups. No broker is needed.

::

    verify(path) ──► VerifyReport          salvage(path, target) ──► SalvageReport
    rebuild_queues, rebuild_index          lost ConsumeQueues and index files, from the CommitLog
    plan_retention, apply_retention        which files are expired; delete or archive them
    list_groups, reset_group, …            positions of consumer groups; Move(group, …)
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
