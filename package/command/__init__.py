"""The command ``segmentlog``: a store directory read and maintained from a shell, without a broker or Spark.

::

    segmentlog VERB STORE … [flags]
        │
        ├─ main        exit code, errors, interrupts, closed pipes
        ├─ catalogue   one row per verb: its name, which is that of its module in verbs/, one line of help
        ├─ parser      argparse with suggestions; flags that verbs share
        ├─ verbs/x     add_arguments(parser), run(options, console) ──► exit code
        ├─ report      reports of maintenance verbs as text or JSON; `progress` meanwhile
        └─ output/     rows as table, JSON, JSON lines, CSV, Arrow or Parquet

A verb is a module ``verbs/NAME.py``, a row of ``catalogue.VERBS`` and a test. Its first lines import nothing that loads
Arrow or numpy, as ``segmentlog NAME --help`` runs them: what is slow is imported in ``run``. A verb returns ``FOUND``
or ``NOT_FOUND``, and raises a `SegmentLogError` for everything else (ADR 24).
"""
