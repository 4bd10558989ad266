from .metadata import MetadataCopier as MetadataCopier
from .replica import Replica as Replica
from .settings import Address as Address
from .settings import Begin as Begin
from .settings import ReplicaConfig as ReplicaConfig
from .settings import ReplicaMetrics as ReplicaMetrics
from .settings import ReplicaState as ReplicaState
from .settings import ReplicaStatus as ReplicaStatus
