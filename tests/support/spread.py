"""The spread of test files over the processes of a run: few of them have a JVM, and the longest run first.

::

    workers 1 and 2 ──► files with the mark `spark` first, then others     one session each: to start a JVM and to warm
    all others      ──► other files, and none while these two live         it up costs as much as a file of Spark tests

    DIVIDED, then LONGEST, then all other files     a worker that began a long file last would end alone
"""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from .scale import DIVIDED

WITH_JVM = {"gw0", "gw1"}


class SparkApart(LoadFileScheduling):
    """A file at a time, or a test of `DIVIDED`, in the order of the files."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if Path(file).stem in DIVIDED else file

    def _reschedule(self, node: WorkerController) -> None:
        with_jvm = {each.gateway.id for each in self.nodes} & WITH_JVM
        if with_jvm and node.gateway.id not in WITH_JVM and all(map(_needs_jvm, self.workqueue)):
            if not node.shutting_down:
                node.shutdown()  # after the files that it has
            return
        super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        has_jvm = node.gateway.id in WITH_JVM
        wanted = next((scope for scope in self.workqueue if _needs_jvm(scope) == has_jvm), None)
        if wanted is not None:
            self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)


@cache
def _needs_jvm(scope: str) -> bool:
    """Return whether the file of a scope, by its path from the root of the clone, has tests with Spark."""
    path = Path(__file__).parents[2] / scope.partition("::")[0]
    return path.suffix == ".py" and "mark.spark" in path.read_text(encoding="utf-8")
