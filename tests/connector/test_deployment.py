"""The recipes of docs/deployment.md on a standalone cluster of one master and two workers: batches and a stream."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.distributions import build, copy_clone, environment
from support.documents import ROOT, Block, code_blocks, run_shell
from support.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.scaled(quick=0)]

PAGE = ROOT / "docs" / "deployment.md"
BLOCKS = [block for block in code_blocks(PAGE) if block.cluster]

JOB = """\
import sys
import segmentlog
from pyspark.sql import SparkSession
from segmentlog.spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
small = {"mappedFileSizeCommitLog": "1m", "flush": "sync"}
rows = spark.range(0, 100, 1, 4).selectExpr("cast(id AS string) AS body", "'Orders' AS topic")
rows.write.format("segmentlog").mode("append").options(**small).save("source")
frame = spark.read.format("segmentlog").option("subscribe", "Orders")
stream = spark.readStream.format("segmentlog").options(subscribe="Orders", startingOffsets="earliest").load("source")
sink = stream.select("topic", "body").writeStream.format("segmentlog").options(**small, checkpointLocation="checkpoint")
sink.trigger(availableNow=True).start("sink").awaitTermination(300)
bodies = [sorted(int(row.body) for row in frame.load(name).select("body").collect()) for name in ("source", "sink")]
assert bodies == [list(range(100))] * 2, bodies
print("ran with segmentlog of", segmentlog.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def block_with(text: str) -> Block:
    (block,) = (block for block in BLOCKS if text in block.text)
    return block


def execute(block: Block, folder: Path, cluster: StandaloneCluster, replaced: dict[str, str], **environ: str) -> str:
    """Execute a recipe in a directory, with a job that reads, writes and streams; return all that it printed."""
    text = block.text
    for shown, executed in ({"spark://master:7077": cluster.master_url} | replaced).items():
        assert shown in text, f"{block} no longer has {shown}"
        text = text.replace(shown, executed)
    quick = "--conf spark.ui.enabled=false --conf spark.log.level=WARN --conf spark.executor.memory=512m"
    text = text.replace("spark-submit ", f"spark-submit {quick} ")
    # Stores are on a file system that all have; relative paths would be of each worker's own directory.
    (folder / "data").mkdir()
    job = JOB
    for name in ("source", "sink", "checkpoint"):
        job = job.replace(f'"{name}"', f'"{folder / "data" / name}"')
    (folder / "job.py").write_text(job)
    return run_shell(text, folder, SPARK_LOCAL_IP="127.0.0.1", **environ)


def test_each_recipe_has_a_test() -> None:
    assert len(BLOCKS) == 4


def test_the_doctor_asks_the_executors(cluster: StandaloneCluster, tmp_path: Path) -> None:
    printed = execute(block_with("doctor --master"), tmp_path, cluster, {}, PYSPARK_PYTHON=sys.executable)
    (line,) = (line for line in printed.splitlines() if " executors " in line)
    assert line.startswith("ok ")
    assert sys.executable in line


def test_the_doctor_names_the_packages_missing_on_executors(cluster: StandaloneCluster, tmp_path: Path) -> None:
    bare = environment(tmp_path / "bare")
    with pytest.raises(AssertionError, match="exit code 1 of") as caught:
        execute(block_with("doctor --master"), tmp_path, cluster, {}, PYSPARK_PYTHON=str(bare))
    lines = [line.strip() for line in str(caught.value).splitlines()]
    for name in ("planning", "executors"):
        (at,) = (number for number, line in enumerate(lines) if line.startswith("fail ") and f" {name} " in line)
        assert lines[at].endswith("has no segmentlog")
        assert "--archives or --py-files as docs/deployment.md says" in lines[at + 1]


def test_an_environment_on_every_machine(cluster: StandaloneCluster, tmp_path: Path, wheel: Path) -> None:
    environment(tmp_path / "env", wheel)
    block = block_with("PYSPARK_PYTHON=/opt/segmentlog")
    printed = execute(block, tmp_path, cluster, {"/opt/segmentlog": str(tmp_path / "env")})
    assert f"ran with segmentlog of {tmp_path}/env/" in printed


def test_the_wheel_as_a_python_file(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """Neither driver nor workers have the package. The first lines of the recipe build the wheel."""
    bare = str(environment(tmp_path / "bare"))
    clone = copy_clone(tmp_path / "clone", all_parts=False)
    # Without isolation pip takes the setuptools that is there; that the wheel can be built at all is tested elsewhere.
    without_index = {"PIP_NO_BUILD_ISOLATION": "false", "PIP_NO_INDEX": "1"}
    printed = execute(
        block_with("--py-files"), clone, cluster, {}, PYSPARK_PYTHON=bare, PYSPARK_DRIVER_PYTHON=bare, **without_index
    )
    assert f"{clone}/dist/segmentlog-0.1.0-py3-none-any.whl/segmentlog/__init__.py" in printed


def test_a_packed_environment(cluster: StandaloneCluster, tmp_path: Path, wheel: Path) -> None:
    replaced = {
        "python3 -m venv packed\n": "",
        "packed/bin/pip install 'segmentlog[spark]'\n": "",  # made below, without loading Spark from an index
    }
    environment(tmp_path / "packed", wheel)
    printed = execute(block_with("--archives"), tmp_path, cluster, replaced)
    assert f"ran with segmentlog of {tmp_path}/environment/" in printed
