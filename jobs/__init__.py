"""Jobs on whole stores: pipelines that run on Spark, or on the cores of one machine.

::

    segmentlog VERB STORE …                      the command, Spark in its own process
    spark-submit …/jobs/submit.py VERB STORE …   the same on a cluster
    from segmentlog.jobs import VERB             VERB.run(spark, …) ──► Report: text, JSON, DataFrame
    spread(work, parts, spark)                   work of `segmentlog.admin`, such as `verify`, by tasks or processes

A job that is killed goes on when it is started again with the same arguments.
"""
