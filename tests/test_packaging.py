"""The distributions: what is in them, and that the wheel works as a file on ``sys.path``."""

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import segmentlog
from support.distributions import build

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as file:
        (name,) = [each for each in file.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(file.read(name))


def test_a_wheel_on_the_path_is_imported_as_it_is(wheel: Path) -> None:
    """As ``spark-submit --py-files`` puts it there; a namespace package would not be found in it."""
    code = """
import segmentlog.command.main, segmentlog.connector.source, segmentlog.jobs.report
from segmentlog.store import *
assert QueueKey("T", 1).queue_id == 1
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("segmentlog")), sep="\\n")
"""
    program = f"{PATHS}sys.path.insert(0, sys.argv[1]){code}"
    ran = subprocess.run([sys.executable, "-S", "-c", program, wheel], check=False, capture_output=True, text=True)
    assert ran.stderr == ""
    assert all(line.startswith(f"{wheel}/segmentlog/") for line in ran.stdout.splitlines())


# The environment's packages without its `.pth` files, which would bring the clone.
PATHS = f"import sys; sys.path += {[path for path in sys.path if path.endswith('site-packages')]!r}; "


def test_every_module_and_type_marker_is_in_the_wheel(wheel: Path) -> None:
    parts = ("store", "query", "connector", "jobs")
    folders = {"package": "segmentlog", **{name: f"segmentlog/{name}" for name in parts}}
    expected = set()
    for folder, package in folders.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".pyi", ".typed", ".gz"} and "pyspark_segmentlog" not in path.parts:
                expected.add(f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    with zipfile.ZipFile(wheel) as file:
        found = {name for name in file.namelist() if ".dist-info/" not in name}
    assert found == expected | {"pyspark_segmentlog/__init__.py"}


def test_the_description_has_no_link_that_leads_nowhere(metadata: email.message.Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert metadata["Version"] == segmentlog.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link] == []
    assert "Reading stores (`docs/reader.md`)" in text
    assert "`docs/options.md`" in text
    assert "## Documents" not in text
    assert "Apache License 2.0" in text


@pytest.mark.slow
@pytest.mark.scaled(quick=0)
def test_a_source_distribution_has_tests_and_documents(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as file:
        found = {name.partition("/")[2] for name in file.getnames()}
    needed = (
        "Makefile LICENSE package/__init__.py store/write/message_store.py docs/format/commit_log.md tests/conftest.py"
    )
    needed += " tests/conformance/fixtures/basic-5.3.3/store.tar.gz tests/interop/oracle/run benchmarks/run.py"
    assert {*needed.split(), "notebooks/01_read_a_store.ipynb", "scripts/setup_env.py"} <= found
    assert [name for name in found if "__pycache__" in name or name.startswith(".venv")] == []


def test_the_recipe_for_conda_has_the_dependencies_of_the_wheel(metadata: email.message.Message) -> None:
    recipe = (ROOT / "images" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    listed = re.findall(r"^    - ([a-z-]+) (\S+)$", recipe.partition("  run:")[2].partition("tests:")[0], re.MULTILINE)
    names = {"python-isal": "isal"}
    asked = {names.get(name, name): set(bounds.split(",")) for name, bounds in listed if name != "python"}
    required = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    found = [re.fullmatch(r"([a-z]+)(\S+)", each) for each in required]
    assert asked == {each[1]: set(each[2].split(",")) for each in found if each is not None}
    assert f'version: "{segmentlog.__version__}"' in recipe
