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

To add a verb:

1. Write ``verbs/NAME.py`` with ``add_arguments(parser)`` and ``run(options, console) -> int``. Its first lines import
   nothing that loads Arrow or numpy: ``segmentlog NAME --help`` runs them. What is slow is imported in ``run``.
2. Add a row to ``catalogue.VERBS``, with the former name of mqadmin if there is one.
3. Write ``tests/command/verbs/test_NAME.py`` with the fixture ``run_command``.

A verb returns ``FOUND`` or ``NOT_FOUND``, and raises a `SegmentLogError` for everything else. Rows go through
``output.rows.write_rows``, so that every verb has every format. ``docs/adr/0024-a-command-without-a-framework.md`` has
the reasons.
"""
