"""Delivery of the package to the Python processes that Spark starts, and a warning where it is missing there.

::

    driver     segmentlog….whl on sys.path, by spark-submit --py-files
                 │ ship_package
                 ├──► SparkFiles/segmentlog….zip ──► executors: workers       Spark puts .zip, .egg and .jar on their
                 │                              └──► driver: planning         path, and leaves out .whl
                 └──► SparkFiles/streaming_job ─► .   driver: planning of streams looks for the same files in there

    driver     installed    warn_of_workers: does the interpreter that Spark will start have what is needed?

Spark plans a Python source on the driver's machine, in processes that run the *workers'* interpreter (ADR 1).
"""

import logging
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipimport import zipimporter

import segmentlog

from .checks import Status, check_workers

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

_STREAM_PLANNERS_FILES: Final = "streaming_job"


def package_archive() -> Path | None:
    """Return the archive (a wheel, mostly) that this package was imported from; None if it is installed."""
    loader = segmentlog.__spec__.loader if segmentlog.__spec__ is not None else None
    return Path(loader.archive) if isinstance(loader, zipimporter) else None


def ship_package(context: "SparkContext", archive: Path) -> None:
    """Add the package's archive, as `package_archive` found it, to a running application, for batches and streams."""
    # Called before a source is registered: a registration takes the application's files of that moment. `--py-files`
    # alone is not enough for two reasons, both Spark's (seen in 4.0 to 4.3). Workers get only files with the suffixes
    # of ``SparkContext.PACKAGE_EXTENSIONS`` on their path. The processes that plan a stream look for all files one
    # directory deeper than where Spark puts them.
    from pyspark import SparkFiles  # noqa: PLC0415 - importing the connector must not import PySpark

    files = Path(SparkFiles.getRootDirectory())  # one for each application, removed when it stops
    is_taken = archive.suffix.lower() in context.PACKAGE_EXTENSIONS
    name = archive.name if is_taken else f"{archive.stem}.zip"
    if not (files / name).exists():
        copy = files / "segmentlog" / name  # executors load it from here for as long as the application runs
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(archive, copy)
        context.addPyFile(str(copy))
    with suppress(FileExistsError):
        (files / _STREAM_PLANNERS_FILES).symlink_to(files, target_is_directory=True)


def warn_of_workers(context: "SparkContext") -> None:
    """Log a warning if the interpreter that Spark will start for workers cannot import what they need."""
    if context.pythonExec == sys.executable:
        return
    found = check_workers(context.pythonExec, master=context.master)
    if found.status is Status.FAIL:
        logger.warning(
            "Spark on master `%s` will start Python workers that cannot run the format `segmentlog`: %s. %s.",
            context.master,
            found.found,
            found.fix,
        )
