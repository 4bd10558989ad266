"""Path names of a store directory; no other module spells them.

::

    root/  commitlog/                     CommitLog segments
           consumequeue/TOPIC/QUEUE_ID/   ConsumeQueue files
           batchconsumequeue/             BatchConsumeQueue files of topics whose queue.type is BatchCQ
           consumequeue_ext/              of a broker with enableConsumeQueueExt
           consumequeue_rocksdb/          queues in RocksDB, with useSeparateStorePathForRocksdbCQ; else in consumequeue
           index/                         IndexFiles
           config/topics.json             TopicConfigManager      (the former version: .bak)
                  consumerOffset.json     ConsumerOffsetManager   (the former version: .bak)
           checkpoint  abort  lock
           dledger-ID/data/               in place of commitlog, or after it: entries of a DLedger group, by broker id
                     /index/  checkpoint  where each entry is, and up to which the group has agreed
           .segmentlog/                   ours; RocketMQ ignores it
                       id  durable                                state of the store
                       batch  ledger  batches                     batch in flight, newest batches, all batches
                       groups.json  groups.lock                   positions that a broker would overwrite
                       retention-history                          deletions of expired files
                       confirmed  confirmed.lock                  offset that replicas hold, and the lock of its master
                       epochs  superseded                         masters of the log, and the master that replaced this
                       incoming                                   batch that a replica has a part of
                       cut-EPOCH-START-STOP/                      log that a demotion or promotion cut off, as a store
                       pulled-from                                archive, topics and times that a pull restored
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
BATCH_QUEUES: Final = "batchconsumequeue"
COMPACTION: Final = "compaction"
CONSUME_QUEUE_EXTENSION: Final = "consumequeue_ext"
CONSUME_QUEUE_ROCKSDB: Final = "consumequeue_rocksdb"
INDEX: Final = "index"
CONFIG: Final = "config"
TOPICS: Final = "topics.json"
CONSUMER_OFFSETS: Final = "consumerOffset.json"
LIGHT_OFFSETS: Final = "lmqConsumerOffset.json"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
LOCK: Final = "lock"
DLEDGER: Final = "dledger-"  # before the id of a broker in its group
MANIFESTS: Final = "manifests/"  # of an archive in object storage
PARTS: Final = "parts/"  # as `MANIFESTS`
OURS: Final = ".segmentlog"
STAGING: Final = "staging"


@dataclass(frozen=True, slots=True)
class DLedgerPaths:
    """Paths of the log that a broker of a DLedger group has, below ``dledger-ID``."""

    root: str

    @property
    def broker(self) -> str:
        """Id of the broker in the group."""
        return self.root.rpartition("/")[2].removeprefix(DLEDGER)

    @property
    def data(self) -> str:
        """Directory of the segments."""
        return join(self.root, "data")

    @property
    def index(self) -> str:
        """Directory of the files that state where each entry is."""
        return join(self.root, "index")

    @property
    def checkpoints(self) -> tuple[str, str]:
        """The file that states up to which entry the group has agreed, and its former version."""
        return join(self.root, CHECKPOINT), join(self.root, f"{CHECKPOINT}.bak")

    @classmethod
    def of_broker(cls, store: str, broker: str) -> "DLedgerPaths":
        """Return the paths of the log of a broker, by its id in the group."""
        return cls(join(store, DLEDGER + broker))

    @classmethod
    def of_data(cls, directory: str) -> "DLedgerPaths | None":
        """Return the paths of a log by the directory of its segments; None if it is no DLedger log."""
        root, _, name = directory.rpartition("/")
        return cls(root) if name == "data" and root.rpartition("/")[2].startswith(DLEDGER) else None


def archived_log(root: str, lead: int) -> str:
    """Directory of the segments of an archive, by the bytes before each of their records."""
    return DLedgerPaths.of_broker(root, "archived").data if lead else join(root, COMMIT_LOG)


class _Path:
    def __init__(self, *names: str) -> None:
        self._below = join(*names)

    def __get__(self, paths: "StorePaths", kind: type["StorePaths"]) -> str:
        return join(paths.root, self._below)


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Paths within a store directory ``root`` (``storePathRootDir``), relative ones with ``""``. No disk is touched."""

    root: str

    # Directory in which new CommitLog segments are made (``storePathCommitLog``); `log_directories` are all of them
    commit_log = _Path(COMMIT_LOG)
    consume_queues = _Path(CONSUME_QUEUE)  # directory of the topics' directories
    batch_queues = _Path(BATCH_QUEUES)  # those of topics with ``queue.type=BatchCQ``
    compacted = _Path(COMPACTION, "compactionLog")  # directory of the topics with ``cleanup.policy=COMPACTION``
    consume_queue_extension = _Path(CONSUME_QUEUE_EXTENSION)  # directory of ``ConsumeQueueExt``
    # Directory of the queues in RocksDB, if they are not in `consumequeue`
    consume_queue_rocksdb = _Path(CONSUME_QUEUE_ROCKSDB)
    index = _Path(INDEX)  # directory of the IndexFiles
    config = _Path(CONFIG)  # directory of the broker's JSON documents
    topics = _Path(CONFIG, TOPICS)  # document of the topics
    consumer_offsets = _Path(CONFIG, CONSUMER_OFFSETS)  # document of the consumer groups' positions
    light_offsets = _Path(CONFIG, LIGHT_OFFSETS)  # the same of a broker with enableLmq, in place of the other
    timer_check = _Path(CONFIG, "timercheck")  # up to where timers were read and delivered
    checkpoint = _Path(CHECKPOINT)  # store times up to which each part was flushed
    abort = _Path(ABORT)  # exists while the store is open, and after a crash
    lock = _Path(LOCK)  # file whose record lock the owner of the store holds
    ours = _Path(OURS)  # directory of the files that only this library knows
    store_id = _Path(OURS, "id")  # identity of the store
    durable_point = _Path(OURS, "durable")  # up to where log, queues and index are on the device
    batch_mark = _Path(OURS, "batch")  # part of the log that belongs to a batch in flight
    ledger = _Path(OURS, "ledger")  # batches that the store holds
    batch_history = _Path(OURS, "batches")  # all batches of the log; on a replica, those of its master
    # Part of the log that belongs to batches of the master which a replica has not received as a whole
    incoming = _Path(OURS, "incoming")
    confirmed = _Path(OURS, "confirmed")  # physical offset that enough replicas hold
    confirmed_lock = _Path(OURS, "confirmed.lock")  # lock file of the process that publishes the confirmed offset
    epochs = _Path(OURS, "epochs")  # masters of the log, and where each of them began
    superseded = _Path(OURS, "superseded")  # epoch of the master that replaced this one
    group_positions = _Path(OURS, "groups.json")  # positions of consumer groups, kept beside the broker's document
    group_mutex = _Path(OURS, "groups.lock")  # lock file of the two documents of positions
    retention_history = _Path(OURS, "retention-history")  # deletions of expired files, one JSON line each
    archive_of = _Path(OURS, "archive-of")  # id or path of the store that an archive holds files of; only in archives
    pulled_from = _Path(OURS, "pulled-from")  # archive, topics and times that a pull restored
    staging = _Path(OURS, STAGING)  # directory of the rows that tasks staged

    # Files are written under these names, then renamed. Writers that may run at once each have their own.
    making_segment = _Path(OURS, "spare")  # the next CommitLog segment
    making_queue_file = _Path(OURS, "queue")  # a ConsumeQueue file with its first entries
    making_index_file = _Path(OURS, "index")  # an IndexFile
    making_state = _Path(OURS, "small")  # checkpoint, abort file, durable point or store id
    making_topics = _Path(OURS, "topics.making")  # document of the topics
    making_replicated = _Path(OURS, "replicated.making")  # a document of the broker that is replicated
    making_batch = _Path(OURS, "batch.making")  # in-flight marker or ledger
    making_confirmed = _Path(OURS, "confirmed.making")  # confirmed offset
    making_epochs = _Path(OURS, "epochs.making")  # epochs
    making_superseded = _Path(OURS, "superseded.making")  # superseding epoch
    making_history = _Path(OURS, "history.making")  # history of deletions
    making_copy = _Path(OURS, "copy")  # copy of an expired file; only in archives
    making_groups = _Path(OURS, "groups.making")  # documents of the consumer groups

    @property
    def log_directories(self) -> tuple[str, ...]:
        """Directories that have the CommitLog segments of a store, unless a caller names others."""
        return (self.commit_log,)

    def consume_queue(self, key: QueueKey) -> str:
        """Directory of the files of one queue; the caller has checked that the topic can be a file name."""
        return join(self.root, CONSUME_QUEUE, key.topic, str(key.queue_id))

    def cut_copy(self, epoch: int, start: int, stop: int) -> str:
        """Directory with the log from ``start`` to ``stop``, which a demotion or promotion cut off."""
        return join(self.root, OURS, f"cut-{epoch}-{start}-{stop}")
