"""Jobs over RocketMQ stores, each a module with frozen ``Args``, ``run`` and a command line.

::

    python -m segmentlog.jobs.demo                        a store of real RocketMQ, read and printed as tables
    python -m segmentlog.jobs.rebuild STORE               ConsumeQueues rebuilt from the CommitLog
    python -m segmentlog.jobs.replicate HOST:PORT STORE   a live replica of a running broker
    python -m segmentlog.jobs.retention plan|apply STORE  expired files, listed or deleted
    python -m segmentlog.jobs.salvage STORE TO            all that is whole of a damaged store, copied
    python -m segmentlog.jobs.verify STORE                findings of a store that is only read
"""
