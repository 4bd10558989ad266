"""Selection of the queue of each row. Pure: it depends on the driver's rules, and on its earlier choices.

::

    queueId of the row          if it is not null
    shardingKey of the row      |hash| mod the topic's queues: equal keys, one queue, their order kept
    neither                     the topic's queues in turn, from (partition + batch) on

The hash is Java's ``String.hashCode``, as in RocketMQ's own clients (``SelectMessageQueueByHash``), so both
send a key to the same queue of as many. Turns begin elsewhere for each task and each batch of a stream, so that small
batches spread. They depend on nothing else but the rows before: a repeated batch goes to the same queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segmentlog.query.selection import UnknownTopicError
from segmentlog.store import IllegalMessageError, is_system_topic
from segmentlog.store.sink import java_hash_array

from ..options.write_options import SYSTEM_TOPIC_FIX
from ..options.write_table import Selector

Ints: TypeAlias = npt.NDArray[np.int64]
Queues: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRules:
    """Rules that the driver decided for all tasks of a write. Sent to the workers."""

    selector: Selector  # never `AUTO`
    counts: Mapping[str, int]  # queues of the existing topics; of all, or of the only topic that is written
    default_queues: int  # queues of a new topic
    create_topic: bool  # whether new topics, and queues beyond those of a topic, are allowed
    system_topics: bool  # whether rows may go to topics of the broker and of consumer groups


class QueueChooser:
    """Chooses the queues of the rows of one task, batch after batch; ``made`` has the queues of new topics."""

    # `start` is where each topic's turn begins: any number that is the same in the next attempt.

    def __init__(self, rules: QueueRules, start: int) -> None:
        self._rules = rules
        self._start = start
        self._turns: dict[str, int] = {}
        self.made: dict[str, int] = {}

    def choose(
        self, topics: pa.DictionaryArray, queue_ids: pa.Array | None, sharding_keys: pa.StringArray | None, rows: Ints
    ) -> Queues:
        """Choose a queue for each of (n,) rows; ``rows`` are the numbers that errors name."""
        # Topics have no nulls, and a dictionary without repetitions.
        codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        names = topics.dictionary.to_pylist()
        counts = self._counts(names, codes, rows)[codes] if names else codes
        chosen = np.full(codes.size, -1, np.int64)
        if self._rules.selector is Selector.COLUMN and queue_ids is not None:
            given = queue_ids.is_valid().to_numpy(zero_copy_only=False)
            chosen[given] = queue_ids.drop_null().to_numpy(zero_copy_only=False)
            self._check_queue_ids(chosen, given, counts, rows)
        if self._rules.selector is not Selector.ROUND_ROBIN and sharding_keys is not None:
            keyed = sharding_keys.is_valid().to_numpy(zero_copy_only=False) & (chosen < 0)
            chosen[keyed] = np.abs(java_hash_array(sharding_keys.filter(pa.array(keyed)))) % counts[keyed]
        rest = np.flatnonzero(chosen < 0)
        if rest.size:
            chosen[rest] = (self._start + self._ranks(codes[rest], names)) % counts[rest]
        return chosen.astype(np.int32)

    def _counts(self, names: list[str], codes: Ints, rows: Ints) -> Ints:
        """Queues of each topic by its code; new topics are noted."""
        rules = self._rules
        counts = np.empty(len(names), np.int64)
        for code, name in enumerate(names):
            if is_system_topic(name) and not rules.system_topics:
                row = int(rows[(codes == code).argmax()])
                raise IllegalMessageError(f"row {row} is for the system topic `{name}`", fix=SYSTEM_TOPIC_FIX)
            known = rules.counts.get(name)
            if known is None:
                if not rules.create_topic:
                    row = int(rows[(codes == code).argmax()])
                    raise unknown_topic(name, f"row {row} asks for")
                self.made[name] = known = rules.default_queues
            counts[code] = known
        return counts

    def _check_queue_ids(self, chosen: Ints, given: npt.NDArray[np.bool_], counts: Ints, rows: Ints) -> None:
        wrong = given & (chosen < 0)
        if wrong.any():
            at = int(wrong.argmax())
            raise IllegalMessageError(
                f"row {int(rows[at])} has queue id {int(chosen[at])}, below zero",
                fix="Use 0 or more, or null for the queue whose turn it is",
            )
        wrong = given & (chosen >= counts)
        if not self._rules.create_topic and wrong.any():
            at = int(wrong.argmax())
            raise IllegalMessageError(
                f"row {int(rows[at])} has queue id {int(chosen[at])}, and its topic has {int(counts[at])} queues",
                fix="Use a lower one, or leave createTopic=false out: the topic then gets the queues it needs",
            )

    def _ranks(self, codes: Ints, names: list[str]) -> Ints:
        """Return how many rows of its topic had their turn before each row."""
        if len(names) == 1:
            before = self._turns.get(names[0], 0)
            self._turns[names[0]] = before + codes.size
            return np.arange(before, before + codes.size)
        order = np.argsort(codes, kind="stable")
        many = np.bincount(codes, minlength=len(names))
        firsts = np.cumsum(many) - many
        before_each = np.array([self._turns.get(name, 0) for name in names], np.int64)
        ranks = np.empty(codes.size, np.int64)
        ranks[order] = np.arange(codes.size) - np.repeat(firsts - before_each, many)
        for name, before, more in zip(names, before_each.tolist(), many.tolist(), strict=True):
            self._turns[name] = before + more
        return ranks


def unknown_topic(name: str, asker: str) -> UnknownTopicError:
    """Error for a topic that does not exist and must not be created."""
    return UnknownTopicError(
        f"{asker} topic `{name}`, which the store does not have",
        fix="Leave createTopic=false out to make it, or make it with RocketMQ's own tools",
    )
