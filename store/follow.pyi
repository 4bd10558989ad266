from .directory.own_state import store_id as store_id
from .directory.retention_history import deletion_note as deletion_note
from .read.lag import Lag as Lag
from .read.lag import measure_lag as measure_lag
from .read.lag import message_identity as message_identity
from .read.lag import store_times as store_times
from .read.queue_watch import QueueWatch as QueueWatch
from .types import MessageIdentity as MessageIdentity
