"""Path names of a store directory; no other module spells them.

::

    root/  commitlog/                     CommitLog segments
           consumequeue/TOPIC/QUEUE_ID/   ConsumeQueue files
           consumequeue_ext/              of a broker with enableConsumeQueueExt
           consumequeue_rocksdb/          queues in RocksDB, with useSeparateStorePathForRocksdbCQ; else in consumequeue
           index/                         IndexFiles
           config/topics.json             TopicConfigManager      (the former version: .bak)
                  consumerOffset.json     ConsumerOffsetManager   (the former version: .bak)
           checkpoint  abort  lock
           .segmentlog/                   ours; RocketMQ ignores it
                       id  durable                                state of the store
                       batch  ledger  batches                     batch in flight, newest batches, all batches
                       groups.json  groups.lock                   positions that a broker would overwrite
                       retention-history                          deletions of expired files
                       confirmed  confirmed.lock                  offset that replicas hold, and the lock of its master
                       epochs  superseded                         masters of the log, and the master that replaced this
                       incoming                                   batch that a replica has a part of
                       cut-EPOCH-START-STOP/                      log that a demotion or promotion cut off, as a store
                       archive-of  copy                           of an archive: its store, and the copy being made
                       staging/                                   rows of tasks that no commit took yet
                       spare  queue  index  small  *.making       files that do not have their names yet

RocketMQ: ``StorePathConfigHelper``, ``BrokerPathConfigHelper``.
"""

from dataclasses import dataclass
from posixpath import join
from typing import Final

from ..types import QueueKey

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXTENSION: Final = "consumequeue_ext"
CONSUME_QUEUE_ROCKSDB: Final = "consumequeue_rocksdb"
INDEX: Final = "index"
CONFIG: Final = "config"
TOPICS: Final = "topics.json"
CONSUMER_OFFSETS: Final = "consumerOffset.json"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
LOCK: Final = "lock"
OURS: Final = ".segmentlog"
STAGING: Final = "staging"


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Paths within a store directory ``root`` (``storePathRootDir``), relative ones with ``""``. No disk is touched."""

    root: str

    @property
    def commit_log(self) -> str:
        """Directory of the CommitLog segments (``storePathCommitLog``), unless a broker was configured otherwise."""
        return join(self.root, COMMIT_LOG)

    @property
    def consume_queues(self) -> str:
        """Directory of the topics' directories."""
        return join(self.root, CONSUME_QUEUE)

    def consume_queue(self, key: QueueKey) -> str:
        """Directory of the files of one queue; the caller has checked that the topic can be a file name."""
        return join(self.root, CONSUME_QUEUE, key.topic, str(key.queue_id))

    @property
    def consume_queue_extension(self) -> str:
        """Directory of ``ConsumeQueueExt``."""
        return join(self.root, CONSUME_QUEUE_EXTENSION)

    @property
    def consume_queue_rocksdb(self) -> str:
        """Directory of the queues in RocksDB, if they are not in ``consumequeue``."""
        return join(self.root, CONSUME_QUEUE_ROCKSDB)

    @property
    def index(self) -> str:
        """Directory of the IndexFiles."""
        return join(self.root, INDEX)

    @property
    def config(self) -> str:
        """Directory of the broker's JSON documents."""
        return join(self.root, CONFIG)

    @property
    def topics(self) -> str:
        """Document of the topics."""
        return join(self.root, CONFIG, TOPICS)

    @property
    def consumer_offsets(self) -> str:
        """Document of the consumer groups' positions."""
        return join(self.root, CONFIG, CONSUMER_OFFSETS)

    @property
    def checkpoint(self) -> str:
        """Store times up to which each part was flushed."""
        return join(self.root, CHECKPOINT)

    @property
    def abort(self) -> str:
        """Exists while the store is open, and after a crash."""
        return join(self.root, ABORT)

    @property
    def lock(self) -> str:
        """File whose record lock the owner of the store holds."""
        return join(self.root, LOCK)

    @property
    def ours(self) -> str:
        """Directory of the files that only this library knows."""
        return join(self.root, OURS)

    @property
    def store_id(self) -> str:
        """Identity of the store."""
        return join(self.root, OURS, "id")

    @property
    def durable_point(self) -> str:
        """Up to where log, queues and index are on the device."""
        return join(self.root, OURS, "durable")

    @property
    def batch_mark(self) -> str:
        """Part of the log that belongs to a batch in flight."""
        return join(self.root, OURS, "batch")

    @property
    def ledger(self) -> str:
        """Batches that the store holds."""
        return join(self.root, OURS, "ledger")

    @property
    def batch_history(self) -> str:
        """All batches of the log; on a replica, those of its master."""
        return join(self.root, OURS, "batches")

    @property
    def incoming(self) -> str:
        """Part of the log that belongs to batches of the master which a replica has not received as a whole."""
        return join(self.root, OURS, "incoming")

    @property
    def confirmed(self) -> str:
        """Physical offset that enough replicas hold."""
        return join(self.root, OURS, "confirmed")

    @property
    def confirmed_lock(self) -> str:
        """Lock file of the process that publishes the confirmed offset."""
        return join(self.root, OURS, "confirmed.lock")

    @property
    def epochs(self) -> str:
        """Masters of the log, and where each of them began."""
        return join(self.root, OURS, "epochs")

    @property
    def superseded(self) -> str:
        """Epoch of the master that replaced this one."""
        return join(self.root, OURS, "superseded")

    def cut_copy(self, epoch: int, start: int, stop: int) -> str:
        """Directory with the log from ``start`` to ``stop``, which a demotion or promotion cut off."""
        return join(self.root, OURS, f"cut-{epoch}-{start}-{stop}")

    @property
    def group_positions(self) -> str:
        """Positions of consumer groups, kept beside the broker's document."""
        return join(self.root, OURS, "groups.json")

    @property
    def group_mutex(self) -> str:
        """Lock file of the two documents of positions."""
        return join(self.root, OURS, "groups.lock")

    @property
    def retention_history(self) -> str:
        """Deletions of expired files, one JSON line each."""
        return join(self.root, OURS, "retention-history")

    @property
    def archive_of(self) -> str:
        """Id or path of the store that an archive holds files of; only in archives."""
        return join(self.root, OURS, "archive-of")

    @property
    def staging(self) -> str:
        """Directory of the rows that tasks staged."""
        return join(self.root, OURS, STAGING)

    # Files are written under these names, then renamed. Writers that may run at once each have their own.

    @property
    def making_segment(self) -> str:
        """The next CommitLog segment."""
        return join(self.root, OURS, "spare")

    @property
    def making_queue_file(self) -> str:
        """A ConsumeQueue file with its first entries."""
        return join(self.root, OURS, "queue")

    @property
    def making_index_file(self) -> str:
        """An IndexFile."""
        return join(self.root, OURS, "index")

    @property
    def making_state(self) -> str:
        """Checkpoint, abort file, durable point or store id."""
        return join(self.root, OURS, "small")

    @property
    def making_topics(self) -> str:
        """Document of the topics."""
        return join(self.root, OURS, "topics.making")

    @property
    def making_replicated(self) -> str:
        """A document of the broker that is replicated."""
        return join(self.root, OURS, "replicated.making")

    @property
    def making_batch(self) -> str:
        """In-flight marker or ledger."""
        return join(self.root, OURS, "batch.making")

    @property
    def making_confirmed(self) -> str:
        """Confirmed offset."""
        return join(self.root, OURS, "confirmed.making")

    @property
    def making_epochs(self) -> str:
        """Epochs."""
        return join(self.root, OURS, "epochs.making")

    @property
    def making_superseded(self) -> str:
        """Superseding epoch."""
        return join(self.root, OURS, "superseded.making")

    @property
    def making_history(self) -> str:
        """History of deletions."""
        return join(self.root, OURS, "history.making")

    @property
    def making_copy(self) -> str:
        """Copy of an expired file; only in archives."""
        return join(self.root, OURS, "copy")

    @property
    def making_groups(self) -> str:
        """Documents of the consumer groups."""
        return join(self.root, OURS, "groups.making")
