"""Bodies as columns, and messages whose body does not parse in a target of their own.

::

    messages ── BodyFormat.widen, in tasks ──┬─ bodyError is null ──► target         columns, id, total
                                             └─ else ───────────────► dead letters   place, bodyError, body

Dead letters follow the target: a part that the target has, and the dead letters lack, is read again. So a kill between
the two loses none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from segmentlog.query.body_columns import BODY_ERROR, BodyFormat

from .parts import Part, Target
from .planning import Request, frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

_BODY: Final = "body"
DEAD_LETTER_COLUMNS: Final = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "body")
"""Columns of dead letters, before ``bodyError``."""


@dataclass(frozen=True, kw_only=True)
class Bodies:
    """Format of the bodies, and where messages go whose body does not parse.

    Attributes
    ----------
    format : BodyFormat
    dead_letters : Target
    """

    format: BodyFormat
    dead_letters: Target

    def frame_of(self, spark: "SparkSession", request: Request, part: Part) -> "tuple[DataFrame | None, Observation]":
        """Return the messages of a part that parse; the observation has the number of the others as ``rejected``."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        count = Observation()
        read = [*request.columns, *([] if _BODY in request.columns else [_BODY])]
        rows = frame_of(spark, request, part.offsets, read, part.window)
        if rows is None:
            return None, count
        found = _widened(rows, self.format).observe(count, sf.count(BODY_ERROR.name).alias("rejected"))
        dropped = {BODY_ERROR.name, _BODY} - set(request.columns)
        return found.where(sf.isnull(BODY_ERROR.name)).drop(*dropped), count

    def bury(self, spark: "SparkSession", request: Request, part: Part) -> None:
        """Write the dead letters of a part."""
        from pyspark.sql import functions as sf

        rows = frame_of(spark, request, part.offsets, DEAD_LETTER_COLUMNS, part.window)
        if rows is not None:
            found = _widened(rows.select(*DEAD_LETTER_COLUMNS), self.format)
            rows = found.where(sf.isnotnull(BODY_ERROR.name)).select(*DEAD_LETTER_COLUMNS, BODY_ERROR.name)
        self.dead_letters.write(part, rows)

    def missing(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts of a target that the dead letters lack."""
        there = {(part.window, part.number) for part in self.dead_letters.parts()}
        return [part for part in parts if (part.window, part.number) not in there]


def _widened(rows: "DataFrame", bodies: BodyFormat) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    def widen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(bodies.widen, batches)

    added = from_arrow_schema(pa.schema([*bodies.schema, BODY_ERROR]))
    # A name that is there twice is an error here, and not in each task.
    bodies.widened(pa.schema([(name, pa.null()) for name in rows.columns]))
    return rows.mapInArrow(widen, StructType([*rows.schema.fields, *added.fields]))
