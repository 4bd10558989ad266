"""Messages as a batch, and staged."""

import os
from collections.abc import Iterable

import pyarrow as pa

from segmentlog.store.config import StoreConfig
from segmentlog.store.encode.message import Outgoing
from segmentlog.store.sink import Staged, Staging


def batch_of(messages: Iterable[Outgoing]) -> pa.RecordBatch:
    rows = list(messages)
    properties = [list(row.properties.items()) or None for row in rows]
    return pa.record_batch(
        {
            "topic": pa.array([row.topic for row in rows], pa.string()),
            "body": pa.array([row.body for row in rows], pa.binary()),
            "queueId": pa.array([row.queue_id for row in rows], pa.int32()),
            "tags": pa.array([row.tags for row in rows], pa.string()),
            "keys": pa.array([row.keys for row in rows], pa.string()),
            "uniqKey": pa.array([row.uniq_key for row in rows], pa.string()),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
            "flag": pa.array([row.flag for row in rows], pa.int32()),
            "sysFlag": pa.array([row.sys_flag for row in rows], pa.int32()),
            "bornTimestamp": pa.array([row.born_timestamp for row in rows], pa.int64()),
            "bornHost": pa.array([row.born_host for row in rows], pa.string()),
            "reconsumeTimes": pa.array([row.reconsume_times for row in rows], pa.int32()),
            "preparedTransactionOffset": pa.array([row.prepared_transaction_offset for row in rows], pa.int64()),
        }
    )


def stage_messages(
    path: str | os.PathLike[str],
    messages: Iterable[Outgoing],
    config: StoreConfig,
    *,
    job: str = "job",
    partition: int = 0,
    attempt: str = "a",
) -> Staged:
    with Staging.open(path, job, partition, attempt, config) as staging:
        staging.add(batch_of(messages))
        return staging.finish()
