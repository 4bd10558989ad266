"""Query layer: what a read asks for, the same for Spark options, Python arguments and flags of the command.

::

    command ──► api ──┐
                      ├──► query ──► store
    connector ────────┘

It knows neither Spark nor a terminal. ``query.times`` parses times.
"""
