"""The options of rows: their columns, damaged records and bodies, and the sizes of partitions and Arrow batches."""

from enum import Enum
from typing import Final

from segmentlog.store import OnCorrupt, ScanSpec

from . import values
from .option import COUNT, NAMES, SIZE, SWITCH, Option, Table


class SchemaMode(Enum):
    """Whose columns the source has."""

    NATIVE = "native"
    KAFKA = "kafka"


_SPEC: Final = ScanSpec(columns=())
_NO_NAMES: Final[tuple[str, ...]] = ()
ROWS: Final = Table("source")

MIN_PARTITIONS: Final = ROWS.add(
    Option(
        name="minPartitions",
        value=COUNT,
        parse=values.positive,
        default=None,
        meaning="Cut queues until there are at least so many Spark partitions.",
    )
)
MAX_RECORDS_PER_PARTITION: Final = ROWS.add(
    Option(
        name="maxRecordsPerPartition",
        value=COUNT,
        parse=values.positive,
        default=None,
        meaning="Cut queues so that no Spark partition has more messages.",
    )
)
MAX_BYTES_PER_PARTITION: Final = ROWS.add(
    Option(
        name="maxBytesPerPartition",
        value=SIZE,
        parse=values.size,
        default=128 << 20,
        default_text="128m",
        meaning="Cut queues, and pack short ones, so that a Spark partition has about so many stored bytes.",
    )
)
COLUMNS: Final = ROWS.add(
    Option(
        name="columns",
        value=NAMES,
        parse=values.names,
        default=None,
        meaning="The columns, in this order: what `.schema(…)` says, for SQL.",
    )
)
INCLUDE_PROPERTIES: Final = ROWS.add(
    Option(
        name="includeProperties",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        aliases=("includeHeaders",),
        meaning="Add the column `properties`; `headers` with `schemaMode=kafka`. Without it, Spark says "
        "`UNRESOLVED_COLUMN` for `properties`.",
    )
)
PROPERTY_COLUMNS: Final = ROWS.add(
    Option(
        name="propertyColumns",
        value=NAMES,
        parse=values.names,
        default=_NO_NAMES,
        default_text="–",
        meaning="Properties to add as string columns; cheaper than the whole map.",
    )
)
SCHEMA_MODE: Final = ROWS.add(
    Option(
        name="schemaMode",
        value="native, kafka",
        parse=values.choice({"native": SchemaMode.NATIVE, "kafka": SchemaMode.KAFKA}),
        default=SchemaMode.NATIVE,
        default_text="native",
        meaning="`kafka` has the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp, "
        "timestampType.",
    )
)
CHECK_CRC: Final = ROWS.add(
    Option(
        name="checkCrc",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        meaning="Check every body that is read against its CRC-32.",
    )
)
CORRUPT_RECORD: Final = ROWS.add(
    Option(
        name="corruptRecord",
        value="fail, skip, null",
        parse=values.choice({"fail": OnCorrupt.FAIL, "skip": OnCorrupt.SKIP, "null": OnCorrupt.NULL}),
        default=OnCorrupt.FAIL,
        default_text="fail",
        meaning="A damaged record fails the query, is left out with a warning, or becomes a row of nulls except "
        "for topic, queueId and queueOffset. In a stream with `failOnDataLoss=false` the default is skip.",
    )
)
RAW_BODY: Final = ROWS.add(
    Option(
        name="rawBody",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        meaning="Leave compressed bodies compressed.",
    )
)
MAX_BODY_BYTES: Final = ROWS.add(
    Option(
        name="maxBodyBytes",
        value=SIZE,
        parse=values.size,
        default=_SPEC.max_body_bytes,
        default_text="16m",
        meaning="The most that one compressed body may inflate to; more counts as damage.",
    )
)
BATCH_BYTES: Final = ROWS.add(
    Option(
        name="batchBytes",
        value=SIZE,
        parse=values.size,
        default=_SPEC.batch_bytes,
        default_text="8m",
        meaning="The size to aim at for one Arrow batch; for tuning.",
    )
)
BATCH_ROWS: Final = ROWS.add(
    Option(
        name="batchRows",
        value=COUNT,
        parse=values.positive,
        default=_SPEC.batch_rows,
        meaning="The most rows of one Arrow batch; for tuning.",
    )
)
