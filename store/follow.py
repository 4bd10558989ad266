"""Following a store: queues watched as they grow, messages known again, sizes and store times of what waits.

::

    QueueWatch.look() ──► Sighting        queues that moved, shrank or went since the last look
    measure_lag, store_times              lag per queue, and store times of single messages
    message_identity, store_id            identity of a message and of a store, for checkpoints
    deletion_note                         last deletion by retention, for reports of data loss
    delay_progress                        how far a broker delivered delayed messages

The connector uses these names for streams and lag.
"""

from segmentlog.doors import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, globals())
