"""Registration of the format with a Spark session, classic or Connect.

::

    classic session    driver Python ── Py4J ──► JVM     ship the package, if it came with --py-files (`shipping`);
                                                         register the format with the session's fs.s3a.…, fs.gs.… and
                                                         fs.azure.…, if it is not registered like that;
                                                         activate the session in the JVM thread of the caller
    Connect session    client Python ── gRPC ──► server  register the format

Spark runs a Python source in processes that do not have the session's settings. So those of object storage, and the
time zone, are in the class that is registered: Spark pickles it, and shows it nowhere.

For a write, Spark looks the format up in the session that is *active* in the JVM thread of the caller. It activates a
session in the thread that makes it, and in no other.
"""

import json
import logging
import re
from datetime import tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from segmentlog.query.times import parse_zone
from segmentlog.store import ConfigError, StorageOptions

from .setup.shipping import package_archive, ship_package, warn_of_workers
from .setup.spark_versions import register_format
from .setup.workers import workers_like_driver
from .source import SegmentLogDataSource

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_DEFAULT: Final = re.compile(r"-default\.xml$|default values$")
"""Resources of settings that neither the user nor the cluster made."""
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"(?:Z|(?:UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d\d))?)?)", re.ASCII)
_registered: Final[WeakKeyDictionary["SparkSession", object]] = WeakKeyDictionary()
"""What each session of this process has: class, Python and files."""


def register(spark: "SparkSession") -> None:
    """Make ``format("segmentlog")`` known to a session, and the session to the calling thread.

    A local session reads and writes the format in the Python that calls this, unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` name another. Reads take the ``fs.s3a``, ``fs.gs`` and ``fs.azure`` settings and the time
    zone that the session has now; options ``storage.NAME`` and ``timeZone`` win over them. No setting of the session is
    changed. Further calls only do what is still missing, so each thread can call it. A Python thread other than the one
    that made the session has to, before it writes with any Python source (``DATA_SOURCE_NOT_FOUND``).

    Parameters
    ----------
    spark
        A classic session, or one of Spark Connect, whose server then needs this package in its Python.
    """
    context: SparkContext | None = getattr(spark, "sparkContext", None)  # of a Connect session: an AttributeError
    if context is None:
        register_format(spark, _source_with(StorageOptions.of_session(spark.conf.getAll), _time_zone(spark)))
        return
    archive = package_archive()
    if archive is not None:
        ship_package(context, archive)
    with workers_like_driver(context):
        if archive is None:
            warn_of_workers(context)
        source = _source_with(StorageOptions.of_session(_hadoop_settings(spark)), _time_zone(spark))
        # Spark pickles the class with the Python and the files of this moment, and warns of each replacement.
        made = source, context.pythonExec, tuple(context._python_includes or ())  # noqa: SLF001 - as below
        if _registered.get(spark) != made:
            register_format(spark, source)
            _registered[spark] = made
    session: Any = spark._jsparkSession  # noqa: SLF001 - Spark has no public way
    session.setActiveSession(session)


def _hadoop_settings(spark: "SparkSession") -> dict[str, str]:
    """Return Hadoop's settings as Spark's own sources have them, without Hadoop's defaults."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a client of Spark Connect may not have it

    session: Any = spark._jsparkSession  # noqa: SLF001 - Spark has no public way
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    try:
        hadoop, text = session.sessionState().newHadoopConf(), jvm.java.io.StringWriter()
        jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(hadoop, text)
        found = json.loads(text.toString())["properties"]  # in one call; without values of secrets
        names = [each["key"] for each in found if _DEFAULT.search(each["resource"]) is None]
        wanted = [name for name in names if StorageOptions.of_session({name: ""})]
        return {name: hadoop.get(name) for name in wanted}
    except Py4JError:  # these are Spark's internals: another release may not have them
        return spark.conf.getAll


def _time_zone(spark: "SparkSession") -> tzinfo | None:
    """Return the session's time zone; None for one that Python does not know."""
    named = str(spark.conf.get(_TIME_ZONE))
    # Java also writes offsets as UTC+8, GMT+08:00, UT-3, +8 or Z.
    offset = _OFFSET.fullmatch(named)
    if offset is not None:
        named = f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}" if offset[1] else "UTC"
    try:
        return parse_zone(named)
    except ConfigError:
        logger.warning("%s is %s, which Python does not know: set the option timeZone", _TIME_ZONE, named)
        return None


@lru_cache(16)  # settings have credentials, which may be renewed for years
def _source_with(settings: StorageOptions, time_zone: tzinfo | None) -> type[SegmentLogDataSource]:
    """Return the source with settings: a class without a module, so that it is pickled with its attributes."""
    given = {"settings": settings, "time_zone": time_zone}
    return type(SegmentLogDataSource.__name__, (SegmentLogDataSource,), given)
