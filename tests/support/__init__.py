"""Code shared by tests: builders of stores and records, hypothesis strategies, comparisons.

Import it as ``support`` (``from support.stores import unpack``). It is no installed package and no path leads to it:
``tests/conftest.py`` loads it under that name before any test module is collected. Spark's workers and other processes
do not have it, so nothing of it may be sent to them.
"""
