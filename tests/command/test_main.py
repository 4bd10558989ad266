import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import segmentlog
from segmentlog.command import catalogue
from segmentlog.command.verbs import describe
from support.commands import INSTALLED, run_command
from support.small_store import write_small_store


def test_no_rows_are_not_found(store: Path, tmp_path: Path) -> None:
    with segmentlog.store.MessageStore.open(tmp_path / "empty"):
        pass
    ran = run_command("topics", tmp_path / "empty", "--json")
    assert (ran.code, ran.out, ran.err) == (1, b"", "the store has no topics\n")


def test_an_error_states_code_found_asked_where_and_remedy(store: Path) -> None:
    ran = run_command("queues", store, "ordrs")
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err == (
        "error[SEGMENTLOG_UNKNOWN_TOPIC]: TOPIC: there is no topic `ordrs`\n"
        f"  asked:  segmentlog queues {store} ordrs\n"
        f"  where:  {store}\n"
        "  remedy: Did you mean `orders`? The topics are `%RETRY%etl`, `orders`, `payments`\n"
    )


def test_the_format_of_the_files_of_a_backfill_is_not_that_of_its_errors(tmp_path: Path) -> None:
    words = ("backfill", tmp_path, "orders", "--day", "2026-01-31", "--to", tmp_path / "lake", "--output", "json")
    assert run_command(*words).err.startswith("error[SEGMENTLOG_")
    assert run_command(*words, "--json").err.startswith('{"error"')


@pytest.mark.parametrize("flags", [["--json"], ["-o", "jsonl"], ["-ojsonl"], ["--output=json"], ["--output", "json"]])
def test_an_error_is_json_where_rows_would_be(store: Path, flags: list[str]) -> None:
    error = run_command("queues", store, "ordrs", *flags).error
    assert sorted(error) == ["asked", "code", "found", "remedy", "where"]
    assert error["code"] == "SEGMENTLOG_UNKNOWN_TOPIC"
    assert error["where"] == {"path": str(store), "offset": None}
    assert error["asked"].endswith("ordrs " + " ".join(flags))


def test_a_missing_verb_and_a_missing_store() -> None:
    ran = run_command()
    assert (ran.code, ran.out, ran.err) == (2, b"", run_command("--help").out.decode())
    assert "the following arguments are required: STORE" in run_command("topics").err
    assert run_command("topics", "--json").error["code"] == "SEGMENTLOG_USAGE"


def test_a_fault_of_ours_is_reported_with_its_traceback(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "opened", lambda _: 1 // 0)
    ran = run_command("topics", store)
    assert ran.code == 2
    assert "in run" in ran.err
    assert "error[SEGMENTLOG_INTERNAL]: ZeroDivisionError" in ran.err


def test_a_failure_of_spark_keeps_its_name(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: object) -> None:
        raise type("Py4JNetworkError", (Exception,), {"__module__": "py4j.protocol"})("Answer from Java side is empty")

    monkeypatch.setattr(describe, "opened", lost)
    ran = run_command("topics", store)
    assert ran.code == 2
    assert ran.err.startswith("error[Py4JNetworkError]: Answer from Java side is empty")
    assert "Traceback" not in ran.err


def test_an_interrupt_is_quiet(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(describe, "opened", interrupted)
    ran = run_command("topics", store)
    assert (ran.code, ran.out, ran.err) == (130, b"", "")


def test_help_of_the_command_and_of_each_verb() -> None:
    for asked in (["--help"], ["-h"], ["help"]):
        ran = run_command(*asked)
        assert (ran.code, ran.err) == (0, "")
        assert "segmentlog VERB STORE" in ran.text
    assert run_command("help", "queues").out == run_command("queues", "--help").out
    assert "usage: segmentlog queues" in run_command("queues", "--help").text


def test_the_version() -> None:
    assert run_command("--version").text == f"segmentlog {segmentlog.__version__}\n"


def test_help_loads_neither_arrow_nor_numpy_nor_rich() -> None:
    """Imports of the table of verbs and of every verb's flags: what `--help` and wrong flags wait for."""
    program = """
import sys
from segmentlog.command.catalogue import VERBS
from segmentlog.command.main import main
assert main(["--help"]) == 0
for verb in VERBS:
    assert main([verb.name, "--help"]) == 0
heavy = {"numpy", "pyarrow", "rich", "typer", "click", "pyspark", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    assert len(catalogue.VERBS) >= 5


@pytest.mark.slow
@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("wished", [None, "2"])
def test_the_installed_command_does_nothing_that_no_verb_needs(store: Path, wished: str | None) -> None:
    """Arrow would load pandas when it first converts a list, numpy would start threads, and Python look for garbage."""
    program = """
import gc, os, sys
from segmentlog.command.main import process
assert "numpy" not in sys.modules
sys.argv = ["segmentlog", "get", sys.argv[1], "--key", "key-7"]
assert process() == 0
assert "pandas.core" not in sys.modules
assert os.environ["OPENBLAS_NUM_THREADS"] == WISHED
assert gc.get_freeze_count() > 10_000, gc.get_freeze_count()
assert gc.get_stats()[0]["collections"] < 40, gc.get_stats()
assert gc.isenabled()
"""
    program = program.replace("WISHED", repr(wished or "1"))
    without = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment = without | ({} if wished is None else {"OPENBLAS_NUM_THREADS": wished})
    command = [sys.executable, "-c", program, store]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


@pytest.mark.slow
def test_a_closed_output_pipe_exits_with_141_and_no_error_text(store: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as stdout:
        process = subprocess.Popen([INSTALLED, "queues", store], stdout=stdout, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (141, b"")


def test_ctrl_c_ends_the_installed_command_quietly(store: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WAITING, store], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, b"")


# A shell starts what stands before `&` with SIGINT ignored, and tests that run there hand that on.
_WAITING = """
import signal, sys, time
from segmentlog.command import main
from segmentlog.command.verbs import describe

signal.signal(signal.SIGINT, signal.default_int_handler)

def wait(options):
    print("waiting", flush=True)
    time.sleep(60)

describe.opened = wait
sys.exit(main.main(["topics", sys.argv[1]]))
"""


def test_warnings_have_level_and_path_and_are_written_once(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    strange = tmp_path / "store" / "consumequeue" / "a\x01b"
    (strange / "0").mkdir(parents=True)
    ran = run_command("topics", store)
    (line,) = ran.err.splitlines()
    assert f"WARNING ignoring {str(strange)!r}" in line
    assert run_command("topics", store).err == ""


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed_is_no_error(closed: str) -> None:
    ran = subprocess.run(["bash", "-c", f"{INSTALLED} --version {closed}"], check=False, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")
