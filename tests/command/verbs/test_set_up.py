import json
import shutil
import subprocess
import tarfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.command.verbs import set_up
from segmentlog.connector import doctor
from segmentlog.connector.setup.checks import Check, Status
from segmentlog.store import ConfigError
from support import fixtures
from support.commands import run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_checks_of_a_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "environment_checks", list)
    found = json.loads(run_command("doctor", store, "--json").out)
    assert [check["name"] for check in found["checks"]][:3] == ["store", "owner", "kind"]
    ran = run_command("doctor", store / "no")
    assert ran.code == 1
    assert ran.text.startswith("fail  store")


@pytest.mark.parametrize(("status", "code"), [(Status.OK, 0), (Status.WARN, 0), (Status.FAIL, 1)])
def test_a_failed_check_is_a_finding(status: Status, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("java", status, "17", "install")
    monkeypatch.setattr(doctor, "environment_checks", lambda: [check])
    ran = run_command("doctor", "--json")
    assert ran.code == code
    assert json.loads(ran.out) == {
        "ok": code == 0,
        "checks": [{"name": "java", "status": status.value, "found": "17", "fix": "install"}],
    }


BASIC, TIME = (fixtures.expected(name).messages for name in ("basic-5.3.3", "time-5.3.3"))


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.scaled(quick=0)
def test_the_demo_shows_the_queues_and_messages_that_rocketmq_has(spark: "SparkSession", tmp_path: Path) -> None:
    stores = tuple(
        set_up.unpack(archive, str(tmp_path / Path(archive).name.removesuffix(".tar.gz")))
        for archive in set_up.ARCHIVES
    )
    queues, topics, tags, times, tagged, one = set_up.answers(spark, stores, rows=1000)

    expected = sorted(
        (name, queue["topic"], queue["queueId"], queue["minOffset"], queue["maxOffset"], queue["total"])
        for name in ("basic-5.3.3", "time-5.3.3")
        for queue in fixtures.expected(name).queues
    )
    assert list(queues.rows) == expected
    assert [row[:3] for row in topics.rows] == [
        ("basic-5.3.3", "TopicA", 248),
        ("basic-5.3.3", "TopicB", 218),
        ("basic-5.3.3", "topic_c-3", 235),
        ("time-5.3.3", "TimeTopic", 620),
    ]
    assert sum(row[4] for row in topics.rows) == sum(message["storeSize"] for message in [*BASIC, *TIME])
    assert sum(row[2] for row in tags.rows) == sum(message["tags"] is not None for message in [*BASIC, *TIME])
    assert 0 < sum(row[5] for row in times.rows) < 1321
    assert {row[1] for row in times.rows} >= {"TopicA", "TimeTopic"}
    found = [(row[0], row[1], row[2]) for row in tagged.rows]
    assert found == [
        (m["topic"], m["queueId"], m["queueOffset"]) for m in BASIC if (m["topic"], m["tags"]) == found_tag(tagged)
    ]
    ((topic, queue_id, offset, msg_id, *_, properties),) = one.rows
    (message,) = [m for m in BASIC if (m["topic"], m["queueId"], m["queueOffset"]) == (topic, queue_id, offset)]
    assert (msg_id, properties) == (message["msgId"], message["properties"])


def test_the_packed_stores_equal_the_fixtures() -> None:
    for archive in set_up.ARCHIVES:
        name = Path(archive).name.removesuffix(".tar.gz")
        assert Path(archive).read_bytes() == (fixtures.FOLDER / name / "store.tar.gz").read_bytes()


def test_stores_are_unpacked_without_spark_once(tmp_path: Path) -> None:
    ran = run_command("demo", "--unpack", tmp_path / "stores")
    paths = ran.text.splitlines()
    assert paths == [str(tmp_path / "stores" / name) for name in ("basic-5.3.3", "time-5.3.3")]
    assert [row["topic"] for row in run_command("topics", paths[1], "--json").rows] == ["TimeTopic"]
    again = run_command("demo", "--unpack", tmp_path / "stores")
    assert again.code == 2
    assert "into a new directory" in again.err
    assert sorted(each.name for each in (tmp_path / "stores").iterdir()) == ["basic-5.3.3", "time-5.3.3"]


def found_tag(tagged: set_up.AnswerTable) -> tuple[object, object]:
    """The topic and the one tag of the table."""
    ((topic, tag),) = {(row[0], row[3]) for row in tagged.rows}
    return topic, tag


def test_tables_go_to_stdout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = set_up.AnswerTable("Tag \x1b[5m", ("topic", "end"), (("a\x1b[31m", 1),))
    monkeypatch.setattr(set_up, "session", lambda *_: nullcontext())
    monkeypatch.setattr(set_up, "answers", lambda *_: [table])
    ran = run_command("demo", "--store", tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.text.splitlines() == [
        "",
        "Tag \\x1b[5m",
        "",
        "  topic      end",
        "  ---------  ---",
        "  a\\x1b[31m    1",
    ]


@pytest.mark.parametrize("has_filters", [True, False])
def test_an_archive_stays_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_filters: bool) -> None:
    if not has_filters:  # Python 3.11.0 to 3.11.3
        monkeypatch.delattr(tarfile, "data_filter")
    archive = tmp_path / "store.tar.gz"
    (tmp_path / "file").write_text("x")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "file", "../escaped")
    with pytest.raises((tarfile.OutsideDestinationError, ConfigError)):
        set_up.unpack(str(archive), str(tmp_path / "to"))
    assert not (tmp_path / "escaped").exists()


@pytest.mark.filterwarnings("ignore:Python 3.14 will, by default, filter:DeprecationWarning")
def test_an_old_python_unpacks_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter")
    store = set_up.unpack(set_up.ARCHIVES[1], str(tmp_path))
    assert (Path(store) / "consumequeue" / "TimeTopic").is_dir()


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "other.tar.gz"
    (tmp_path / "file").write_text("x")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "file", "file")
    with pytest.raises(ConfigError, match="directory `store`"):
        set_up.unpack(str(archive), str(tmp_path / "to"))


BASH = """
source {script}
complete_line() {{
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_segmentlog; echo "${{COMPREPLY[@]}}"
}}
complete_line segmentlog sa
complete_line segmentlog cat /data --fr
complete_line segmentlog put --dry
complete_line segmentlog verify {folder}/st
complete_line segmentlog cat {folder} orders --fro
complete_line segmentlog replicate h:1 copy --from l
complete_line segmentlog cat {folder} orders --output par
"""


def script(shell: str, folder: Path) -> Path:
    ran = run_command("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    (folder / shell).write_text(ran.text)
    return folder / shell


def output(shell: str, program: str) -> str:
    """Output of a program in a shell, or a skip if this machine does not have the shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed on this machine")
    ran = subprocess.run([shell, "-c", program], capture_output=True, check=False, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode()


def test_bash_completes_verbs_flags_and_files(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    found = output("bash", BASH.format(script=script("bash", tmp_path), folder=tmp_path)).splitlines()
    assert found == ["salvage", "--from", "--dry-run", f"{tmp_path}/store", "--from", "last", "parquet"]


@pytest.mark.slow
@pytest.mark.scaled(quick=0)
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    path = script("zsh", tmp_path)
    found = output(
        "zsh", f'autoload -Uz compinit; compinit -u -d {tmp_path}/dump; eval "$(cat {path})"; echo $_comps[segmentlog]'
    )
    assert found == "_shtab_segmentlog\n"


def test_fish_completes_verbs_and_flags(tmp_path: Path) -> None:
    path = script("fish", tmp_path)
    found = output("fish", f"source {path}; complete -C 'segmentlog sal'; complete -C 'segmentlog cat --fro'")
    assert [line.partition("\t")[0] for line in found.splitlines()] == ["salvage", "--from"]
