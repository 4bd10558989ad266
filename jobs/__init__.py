"""Jobs over RocketMQ stores, each a module with frozen ``Args``, ``run`` and a command line.

::

    python -m segmentlog.jobs.demo                a store of real RocketMQ, read and printed as tables
    python -m segmentlog.jobs.rebuild STORE       ConsumeQueues written anew from the CommitLog
"""
