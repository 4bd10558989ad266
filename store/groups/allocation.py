"""Which consumer of a group reads which queue, as RocketMQ's clients compute it, each for itself.

::

    queues of a topic, sorted      0  1  2  3  4  5  6  7        three consumers A B C, sorted
    averagely (AVG)                A  A  A  B  B  B  C  C        in runs; the first ones get one more
    by circle (AVG_BY_CIRCLE)      A  B  C  A  B  C  A  B        in turns
    consistent hash                wherever the ring of hashes says; few queues move when a consumer comes or goes

The clients sort both lists and compute the same answer independently, so every step must equal theirs exactly.
RocketMQ: ``RebalanceImpl.rebalanceByTopic``, ``AllocateMessageQueueAveragely``, ``…AveragelyByCircle``,
``…ConsistentHash``.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from ..format.broker_config import ClientQueue

VIRTUAL_NODES: Final = 10  # number of points of each consumer on the ring; the default of RocketMQ's clients


def allocate_averagely(queues: Iterable[ClientQueue], consumers: Iterable[str], consumer: str) -> list[ClientQueue]:
    """Return a consumer's run of the sorted queues: RocketMQ's default strategy, ``AVG``.

    Parameters
    ----------
    queues
        All queues of one topic, of all brokers, in any order.
    consumers
        The client ids of the group's consumers, in any order.
    consumer
        Whose share is asked for.

    Returns
    -------
    list of ClientQueue
        Sorted; empty for a consumer that is not in the group, and for one too many.
    """
    ordered, ids = _sorted_queues(queues), _sorted_ids(consumers)
    if consumer not in ids:
        return []
    index = ids.index(consumer)
    share, rest = divmod(len(ordered), len(ids))
    if len(ordered) <= len(ids):
        return ordered[index : index + 1]
    start = index * share + min(index, rest)
    return ordered[start : start + share + (index < rest)]


def allocate_by_circle(queues: Iterable[ClientQueue], consumers: Iterable[str], consumer: str) -> list[ClientQueue]:
    """Return every n-th of the sorted queues for a consumer, ``AVG_BY_CIRCLE``; arguments as `allocate_averagely`."""
    ordered, ids = _sorted_queues(queues), _sorted_ids(consumers)
    if consumer not in ids:
        return []
    return ordered[ids.index(consumer) :: len(ids)]


def allocate_consistent_hash(
    queues: Iterable[ClientQueue],
    consumers: Iterable[str],
    consumer: str,
    *,
    virtual_nodes: int = VIRTUAL_NODES,
) -> list[ClientQueue]:
    """Return the queues whose hashes come before one of a consumer's own on the ring, ``CONSISTENT_HASH``.

    Parameters
    ----------
    queues, consumers, consumer
        As `allocate_averagely`.
    virtual_nodes
        How often each consumer is on the ring.

    Notes
    -----
    A hash is the first four bytes of an MD5. Where two consumers' hashes are one, the later of the sorted ids has it.
    """
    ids = _sorted_ids(consumers)
    if consumer not in ids:
        return []
    ring = {_hash(f"{each}-{number}"): each for each in ids for number in range(virtual_nodes)}
    points = sorted(ring)
    return [
        queue
        for queue in _sorted_queues(queues)
        if points and ring[points[bisect_left(points, _hash(_text(queue))) % len(points)]] == consumer
    ]


def _sorted_queues(queues: Iterable[ClientQueue]) -> list[ClientQueue]:
    return sorted(set(queues), key=lambda queue: (_java(queue.topic), _java(queue.broker_name), queue.queue_id))


def _sorted_ids(consumers: Iterable[str]) -> list[str]:
    return sorted(set(consumers), key=_java)


def _java(text: str) -> bytes:
    """Order as Java's ``String.compareTo``: by UTF-16 units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def _text(queue: ClientQueue) -> str:
    """A queue as ``MessageQueue.toString`` writes it."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
