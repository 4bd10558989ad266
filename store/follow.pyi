from .directory.store_id import store_id as store_id
from .read.lag import Lag as Lag
from .read.lag import measure_lag as measure_lag
from .read.probe import message_identity as message_identity
from .read.probe import store_times as store_times
from .read.queue_watch import QueueWatch as QueueWatch
from .retention.history import deletion_note as deletion_note
from .types import MessageIdentity as MessageIdentity
