import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import MessageStore
from support.archived_store import CONFIG, append_rows, write_whole
from support.commands import INSTALLED, run_command
from support.fault_server import Fault, FaultServer, serving
from support.tampering import overwrite

ROWS = 90
PAGE = Path(__file__).parents[3] / "docs" / "archive.md"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_whole(tmp_path / "store", ROWS)


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "archive").mkdir()
    return f"file://{tmp_path}/archive"


def report(*words: object, code: int = 0) -> dict[str, Any]:
    ran = run_command("archive", *words, "--json")
    assert ran.code == code, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_an_archive_is_pushed_listed_verified_and_pulled(store: Path, url: str, tmp_path: Path) -> None:
    pushed = report("push", store, url)
    assert (pushed["records"], pushed["manifest"], pushed["warnings"]) == (ROWS, 1, [])
    listed = report("ls", url)
    assert sum(queue["messages"] for queue in listed["queues"]) == ROWS
    assert [piece["records"] for piece in listed["pieces"]] == [30, 30, 30]
    assert report("verify", url, "--deep")["records"] == ROWS
    pulled = report("pull", url, tmp_path / "restored", "--topic", "refunds", "--from", "@0")
    assert (pulled["queues"], pulled["segments"]) == (1, 3)
    for table in ("queues", "pieces", "files", "pushes"):
        assert "manifest 1: the log [0, " in run_command("archive", "ls", url, table).text
    text = run_command("archive", "pull", url, tmp_path / "again").text
    assert "3 queues with 90 entries" in text


def test_findings_have_the_exit_code_1(store: Path, url: str, tmp_path: Path) -> None:
    overwrite(store, 100, b"\xff\xff")
    assert run_command("archive", "push", store, url).code == 2
    assert "--damaged keep" in run_command("archive", "push", store, url).err
    kept = run_command("archive", "push", store, url, "--damaged", "keep")
    assert (kept.code, "damaged bytes" in kept.text) == (1, True)
    next((tmp_path / "archive" / "log").rglob("*-*")).unlink()
    found = report("verify", url, code=1)["findings"]
    assert [finding["text"] for finding in found] == ["this object is missing"]
    assert "damaged" in run_command("archive", "verify", url).text


def test_segments_are_pruned_by_a_time_or_a_number_of_days(store: Path, url: str) -> None:
    report("push", store, url)
    planned = report("prune", url, "--keep", "0.5", "--dry-run")
    assert (planned["pieces"], planned["manifest"]) == (2, 1)
    assert report("prune", url, "--before", "now", "--orphans-after", "1h")["start"] == planned["start"]
    assert "0 pieces" in run_command("archive", "prune", url, "--keep", "1").text


@pytest.mark.parametrize(
    "words", [["--storage", "aws_secret_access_key=secret"], ["--storage=aws_x=secret"], ["--storage", "secret"]]
)
@pytest.mark.parametrize("verb", [["archive", "verify"], ["topics"]])
def test_credentials_are_not_in_errors(verb: list[str], words: list[str]) -> None:
    ran = run_command(*verb, "nowhere", *words)
    assert ran.code == 2
    assert "secret" not in ran.err.replace("aws_secret_access_key", "")


# Pushes in turns


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with serving() as running:
        yield running


def storage(server: FaultServer, **more: str) -> list[str]:
    return [word for name, value in server.options(**more).items() for word in ("--storage", f"{name}={value}")]


@contextmanager
def service(*words: object) -> Iterator[tuple["subprocess.Popen[str]", Iterator[str]]]:
    """Start a push in turns as a process of its own; yield it with the lines of its log."""
    command = [INSTALLED, "archive", "push", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process, iter(process.stderr.readline, "")
        finally:
            process.kill()


def line_with(text: str, lines: Iterator[str]) -> str:
    seen = []
    for line in lines:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line has {text!r}: {''.join(seen)}")


@pytest.mark.slow
def test_a_service_tries_again_and_pushes_what_is_appended_until_a_signal(store: Path, server: FaultServer) -> None:
    server.fail(Fault("PUT", "a/log", status=500, code="InternalError"))
    flags = ["--every", "500ms", "--listen", "127.0.0.1:0", "--json", *storage(server, max_retries="0")]
    with service(store, "s3://logs/a", *flags) as (process, lines):
        url = re.search(r"http://\S+", line_with("metrics at", lines))
        assert url is not None
        failed = line_with("ERROR", lines)
        assert "push failed, and is tried again in 0 s: [SEGMENTLOG_IO_ERROR] writing " in failed
        assert f"pushed {store} to s3://logs/a" in line_with(f"{ROWS} messages, ", lines)
        with MessageStore.open(store, CONFIG) as opened:
            append_rows(opened, ROWS, 10)
        line_with(" 10 messages, ", lines)
        scraped = urllib.request.urlopen(url[0], timeout=60).read().decode()
        process.send_signal(signal.SIGTERM)
        line_with("stopped; pushes: ", lines)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    found = re.findall(r'^segmentlog_(\w+)\{broker="store"\} (\S+)$', scraped, re.MULTILINE)
    numbers = {name: float(value) for name, value in found}
    assert 0 <= numbers["archive_push_age_seconds"] < 60
    assert numbers["archive_pushed_messages_total"] == ROWS + 10
    assert numbers["archive_pushes_total"] >= 2
    assert numbers["archive_push_failures_total"] == 1
    reports = [json.loads(line) for line in out.splitlines()]
    assert numbers["archive_pushed_bytes_total"] == sum(each["sentBytes"] for each in reports)
    assert sum(each["records"] for each in reports) == ROWS + 10
    assert report("verify", "s3://logs/a", "--deep", *storage(server))["records"] == ROWS + 10


@pytest.mark.slow
def test_a_second_signal_interrupts_a_push_whose_objects_the_next_one_uses(store: Path, server: FaultServer) -> None:
    server.fail(Fault("PUT", "a/manifests", status=503, code="SlowDown", times=1_000_000))
    with service(store, "s3://logs/a", "--every", "1h", *storage(server)) as (process, lines):
        line_with("attempt 3", lines)
        process.send_signal(signal.SIGTERM)
        line_with("attempt 4", lines)  # it goes on
        process.send_signal(signal.SIGTERM)
        line_with("the push was interrupted", lines)
        assert process.wait(60) == 0
    server.fault_of = lambda *_: None  # type: ignore[method-assign]
    assert report("push", store, "s3://logs/a", *storage(server))["reused"] > 0


@pytest.mark.slow
def test_archives_of_a_pattern_are_listed(store: Path, tmp_path: Path, server: FaultServer) -> None:
    for name in ("a", "b"):
        report("push", write_whole(tmp_path / name, 30), f"s3://logs/{name}", *storage(server))
    listed = report("ls", "s3://logs/*", *storage(server))["archives"]
    assert {name: each["store"]["path"] for name, each in listed.items()} == {n: str(tmp_path / n) for n in "ab"}
    text = run_command("archive", "ls", "s3://logs/*", "pieces", *storage(server)).text
    assert text.startswith("s3://logs/a\nmanifest 1: ")
    assert "\n\ns3://logs/b\nmanifest 1: " in text
    (tmp_path / "archives").mkdir()
    report("push", store, f"file://{tmp_path}/archives/c d")
    assert [*report("ls", f"{tmp_path}/archives/*")["archives"]] == ["c d"]
    for words in (("push", f"{tmp_path}/*", "u"), ("verify", "s3://logs/*"), ("prune", "s3://logs/*", "--keep", "1")):
        ran = run_command("archive", *words, *storage(server))
        assert (ran.code, "is a pattern" in ran.err) == (2, True)


def test_wrong_arguments_end_a_service_at_once(store: Path, url: str, tmp_path: Path, server: FaultServer) -> None:
    report("push", store, url)
    other = write_whole(tmp_path / "other", 30)
    for words, text in (
        ((other, url), "archive"),
        ((tmp_path / "nope", url), "no such directory"),
        ((store, "s3x://b"), "is not the URL of an object store"),
        ((store, url, "--listen", "nowhere"), "nowhere"),
    ):
        ran = run_command("archive", "push", *words, "--every", "10m")
        assert (ran.code, text in ran.err) == (2, True), ran.err
    server.fail(Fault("GET", status=404, code="NoSuchBucket"))
    ran = run_command("archive", "push", store, "s3://logs/a", "--every", "10m", *storage(server))
    assert (ran.code, "NoSuchBucket" in ran.err) == (2, True)


def test_segments_are_pruned_by_bytes(store: Path, url: str) -> None:
    report("push", store, url)
    pieces = report("ls", url)["pieces"]
    newest = sum(each["stop"] - each["start"] + each["packBytes"] for each in pieces[-2:])
    assert report("prune", url, "--max-bytes", newest, "--dry-run")["start"] == pieces[-2]["segment"]
    assert report("prune", url, "--max-bytes", newest - 1, "--keep", "99999d")["start"] == pieces[-1]["segment"]


# Buckets


def policies() -> dict[str, set[str]]:
    """Return the actions that docs/archive.md names for each kind of work."""
    rows = re.findall(r"^\| (read|push|prune)\b(.*`s3:.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {work: set(re.findall(r"s3:\w+", row)) for work, row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("work", ["read", "push", "prune"])
def test_the_documented_permissions_suffice_and_each_is_needed(
    store: Path, server: FaultServer, tmp_path: Path, work: str
) -> None:
    flags = storage(server, max_retries="0")
    report("push", store, "s3://logs/a", *flags)
    server.store("logs/a/log/00000000000000000000/0-1.orphan", b"x", modified=1_000_000_000)
    with MessageStore.open(store, CONFIG) as opened:
        append_rows(opened, ROWS, 10)
    commands = {
        "read": [
            ("cat", "s3://logs/a", "orders", "--cache-dir", "none"),
            ("topics", "s3://logs/*", "--cache-dir", "none"),
            ("archive", "ls", "s3://logs/a"),
            ("archive", "verify", "s3://logs/a", "--deep"),
            ("archive", "pull", "s3://logs/a", tmp_path / "pulled"),
        ],
        "push": [("archive", "push", store, "s3://logs/a")],
        "prune": [("archive", "prune", "s3://logs/a", "--keep", "1")],
    }[work]
    needed, kept = policies()[work], dict(server.objects)

    def codes(allowed: set[str]) -> set[int]:
        server.objects, server.allowed = dict(kept), frozenset(allowed)
        return {run_command(*words, *flags).code for words in commands}

    for action in needed:
        shutil.rmtree(tmp_path / "pulled", ignore_errors=True)
        assert codes(needed - {action}) == {2}, action
    assert codes(needed) == {0}
    if work == "prune":
        assert not any("orphan" in key for key in server.objects)


def test_a_push_without_the_right_to_delete_tells_so(store: Path, server: FaultServer) -> None:
    report("push", store, "s3://logs/a", *storage(server))
    server.store("logs/a/log/00000000000000000000/0-1.orphan", b"x", modified=1_000_000_000)
    server.allowed = frozenset(policies()["push"])
    pushed = report("push", store, "s3://logs/a", "--orphans-after", "1h", *storage(server))
    assert pushed["warnings"] == [
        "no object was deleted: deleting failed: AccessDenied (in s3://logs/a/log/00000000000000000000/0-1.orphan)"
    ]


def test_an_object_in_an_archive_class_is_named_with_its_remedy(store: Path, server: FaultServer) -> None:
    report("push", store, "s3://logs/a", *storage(server))
    server.fail(Fault("GET", "a/log/", status=403, code="InvalidObjectState", times=1000))
    for words in (("cat", "s3://logs/a", "orders"), ("archive", "pull", "s3://logs/a", store.parent / "pulled")):
        ran = run_command(*words, *storage(server))
        assert ran.code == 2
        assert "403 InvalidObjectState" in ran.err
        assert "The object is in an archive class, such as Glacier: restore it first" in ran.err
