"""Query layer: the decisions of a read, the same for Spark options, Python arguments and flags of the command.

::

    command ──► api ──┐
                      ├──► query ──► store
    connector ────────┘

    source      the store                    position    starts and ends, resolved to queue offsets
    selection   topics, queues, names        request     columns, filters, treatment of damage
    times       texts of times               metadata    rows about topics, queues, groups, lag, segments
    body_search conditions on bodies         frames      delayed messages, dead letters, transactions, traces
    tables      where a table of a backfill ends
    cursor      what was lost, truncated or not confirmed since a reader reached an offset

It knows neither Spark nor a terminal. A door passes the names of its options, arguments or flags in.
"""
