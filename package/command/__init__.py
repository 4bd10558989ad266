"""The command ``segmentlog``: a store directory read and maintained from a shell, without a broker or Spark.

::

    segmentlog VERB STORE … [flags]
        │
        ├─ main        exit code, errors, interrupts, closed pipes
        ├─ catalogue   one row per verb: its name, its heading in --help, one line of help
        ├─ parser      argparse with suggestions; flags that verbs share
        ├─ verbs/      a module per heading: add_VERB(parser), run_VERB(options, console) ──► exit code
        ├─ console     rows, reports of maintenance verbs as text or JSON, progress
        └─ output/     rows as table, JSON, JSON lines, CSV, Arrow or Parquet

A verb is two functions in a module of ``verbs/``, a row of ``catalogue.VERBS`` and a test. The first lines of a module
import nothing that loads Arrow or numpy, as ``segmentlog NAME --help`` runs them: what is slow is imported in
``run_VERB``. It returns ``FOUND`` or ``NOT_FOUND``, and raises a `SegmentLogError` for everything else (ADR 24).
"""
