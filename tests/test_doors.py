"""Doors: every listed name is there, ``dir`` lists it, and the list is complete as mypy reads it."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import segmentlog
from segmentlog.doors import names_of
from segmentlog.store import SegmentLogError, StoreConfig, errors

DOORS = [
    "segmentlog.store",
    "segmentlog.store.groups",
    "segmentlog.store.maintenance",
    "segmentlog.store.sink",
    "segmentlog.store.follow",
    "segmentlog.store.ha",
    "segmentlog.connector",
    "segmentlog",
    "segmentlog.admin",
    "segmentlog.replication",
    "segmentlog.spark",
]


@pytest.mark.parametrize("door", DOORS)
def test_all_that_is_promised_is_there(door: str) -> None:
    module = importlib.import_module(door)
    assert len(set(module.__all__)) == len(module.__all__) > 0
    for name in module.__all__:
        found = getattr(module, name)
        is_same = getattr(found, "__name__", name).removeprefix("segmentlog.") == name
        assert is_same or found is StoreConfig  # at the top it is named Config
    assert {name for name in dir(module) if not name.startswith("_")} == set(module.__all__)
    with pytest.raises(AttributeError, match=f"module '{door}' has no attribute 'StoreReadr'"):
        module.StoreReadr  # noqa: B018


@pytest.mark.parametrize("door", DOORS)
def test_a_stub_holds_names_and_nothing_else(door: str) -> None:
    """A stub has the names that exist at run time."""
    spec = importlib.import_module(door).__spec__
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).with_suffix(".pyi").read_text(encoding="utf-8"))
    if door == "segmentlog":
        assert ast.unparse(tree.body.pop()) == "__version__: str"
    assert all(isinstance(line, ast.ImportFrom) for line in tree.body)
    aliases = [alias for line in tree.body if isinstance(line, ast.ImportFrom) for alias in line.names]
    assert [alias.name for alias in aliases] == [alias.asname for alias in aliases] == list(names_of(door))


def test_no_name_is_on_two_doors_of_the_store() -> None:
    names = [name for door in DOORS if door.startswith("segmentlog.store") for name in names_of(door)]
    assert sorted(set(names)) == sorted(names)


TOP = """
Appended AppendedBatch Config Flush Follow JoinedRows Lookup Message MetadataTable OnCorrupt OnDamage OnLoss
QueueKey QueueRange Scan Store Stores SystemRows Time WritableStore admin open open_stores replication spark
BrokerError ConfigError CorruptError DataLossError FormatError IllegalMessageError MissingExtraError NoSpaceError
NotAStoreError OffsetOutOfRangeError ReplicationError SegmentLogError StoreClosedError StoreFailedError StoreIOError
StoreInUseError UnknownQueueError UnreadableError UnsupportedStoreError
"""
ADMIN = """
Boundary ClientQueue Conditions Finding GroupChange GroupProgress Kind MessageModel Move QueueKey RebuiltQueues
Recorded Retained RetentionSettings RocketMQRelease SalvageReport ToEarliest ToLatest ToOffset ToTime VerifyReport
allocate_averagely allocate_by_circle allocate_consistent_hash apply_retention client_progress clone_group
commit_offsets delete_group group_offsets list_groups plan_retention publish_progress rebuild_index rebuild_queues
reset_group salvage verify
ArchiveCheck ArchiveContent ArchiveFinding ArchivedRange PruneReport PullReport PushReport PushedManifest
archive_content archive_prune archive_pull archive_push archive_verify
CorruptQueueError CorruptRecordError DamagedLogError
"""
REPLICATION = """
Address Attachments Begin Demotion MessageStore MetadataCopier Promotion Quorum Replica ReplicaConfig
ReplicaState ReplicaStatus ReplicationServer ServerConfig Tls demote promote
DivergedLogError NoReplicaError ReplicaTimeoutError StaleMasterError UnconfirmedError
"""
SPARK = """
ConflictingOptionsError LagListener LagMetrics LagReport MissingOptionError NotSupportedError QueueLag SchemaError
StartAfterEndError UnknownOptionError UnknownTopicError find_by_keys group_lag last_commit prepare_java prepare_workers
register BatchGapError ChangedReplayError
"""


@pytest.mark.parametrize(
    ("door", "names"),
    [
        ("segmentlog", TOP),
        ("segmentlog.admin", ADMIN),
        ("segmentlog.replication", REPLICATION),
        ("segmentlog.spark", SPARK),
        ("segmentlog.connector", "SegmentLogDataSource"),
    ],
)
def test_the_names_that_are_promised(door: str, names: str) -> None:
    """A name that is added or removed is a decision: it is made here."""
    assert sorted(names_of(door)) == sorted(names.split())


def test_every_error_is_caught_by_a_name_of_the_door() -> None:
    top = {getattr(segmentlog, name) for name in names_of("segmentlog") if name.endswith("Error")}
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SegmentLogError)}
    assert top <= kinds
    assert all(top & set(kind.__mro__) for kind in kinds)


@pytest.mark.parametrize("door", DOORS)
def test_every_name_of_a_door_has_a_docstring_and_so_has_every_method(door: str) -> None:
    """Inside, a docstring that repeats its name is left out; the linter does not ask for it."""
    bare = []
    for name in names_of(door):
        found = getattr(importlib.import_module(door), name)
        members = {name: found}
        if isinstance(found, type):
            members |= {f"{name}.{each}": getattr(found, each) for each in vars(found) if not each.startswith("_")}
        for place, member in members.items():
            is_code = inspect.isroutine(member) or isinstance(member, type | property)
            text = inspect.getdoc(member) or ""
            if is_code and (not text or text.startswith(f"{name}(")):  # the latter is written by `dataclass`
                bare.append(place)
    assert bare == []


def test_a_name_is_loaded_once_and_kept() -> None:
    program = """
import sys, segmentlog.store as store
assert "segmentlog.store.types" not in sys.modules
key = store.QueueKey
assert vars(store)["QueueKey"] is key is sys.modules["segmentlog.store.types"].QueueKey
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_library_prints_no_log_record() -> None:
    """Without a handler, Python's `logging` prints warnings as bare lines."""
    code = "import segmentlog, logging; logging.getLogger('segmentlog.store.read').warning('bare')"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stderr == ""
