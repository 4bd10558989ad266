import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.command.catalogue import find_verb
from segmentlog.command.console import Console
from segmentlog.command.report import Report
from segmentlog.command.verbs import serve as verb
from segmentlog.store import BatchId, MessageStore, ReadFrom, StoreReader
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import FollowedLog
from segmentlog.store.log.confirmed import confirmed_offset
from segmentlog.store.sink import Staging, SyncReplication, commit_batch
from support.batches import batch_of
from support.commands import run_command
from support.ha import free_port
from support.reading import read
from support.replicas import following, log_bytes, until
from support.written_stores import SMALL, message

PLAIN = replace(SMALL, record_crc=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MessageStore.open(tmp_path / "store", PLAIN).close()
    return tmp_path / "store"


@pytest.mark.slow
def test_commits_wait_for_replicas_until_it_is_terminated(tmp_path: Path, path: Path) -> None:
    with MessageStore.open(path, PLAIN) as store:
        store.append(message(1, 9, 0))  # an empty log is acknowledged after 5 s
    port = free_port()
    where = [str(path), "--listen", f"127.0.0.1:{port}", "--in-sync-replicas", "2", "--json"]
    command = [sys.executable, "-m", "segmentlog.command", "serve", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with following(tmp_path / "copy", port, store_config=PLAIN, probe_s=0.3) as replica:
            for batch in range(2):
                with Staging.open(path, f"job{batch}", 0, "a", PLAIN) as staging:
                    staging.add(batch_of([message(1, batch, serial) for serial in range(30)]))
                    staged = [staging.finish()]
                waits = SyncReplication(timeout_s=60)
                committed = commit_batch(path, PLAIN, BatchId("q", batch), staged, replication=waits)
                assert replica.store.end_offset >= committed.stop
                assert confirmed_offset(LocalWritableFileSystem(), str(path)) == committed.stop
                assert len(list(read(StoreReader.open(path, read_from=ReadFrom.CONFIRMED)))) == 30 * (batch + 1) + 1
        process.terminate()
        out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    stop = committed.stop
    assert json.loads(out) == {"store": str(path), "end": stop, "confirmed": stop, "problem": "", "claimedEpoch": None}
    assert log_bytes(tmp_path / "copy")[:stop] == log_bytes(path)[:stop]


def serve(stop: threading.Event, *words: object) -> Report:
    options = find_verb("serve").parser().parse([str(each) for each in words])
    return verb.serve(options, Console.of_process(), stop)


def test_a_server_that_ends_by_itself_says_why(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(log: FollowedLog) -> int:
        raise RuntimeError("planted")

    monkeypatch.setattr(FollowedLog, "settled_offset", property(fail))
    report = serve(threading.Event(), path, "--listen", "127.0.0.1:0", "--watch")
    assert (report.has_findings, report.document["problem"]) == (True, "planted")
    assert report.text.endswith("served up to physical offset 0; the server ended: planted")
    assert [each.levelname for each in caplog.records if "replication server ended" in each.message] == ["ERROR"]


def test_allowed_networks_are_taken(path: Path) -> None:
    stop = threading.Event()
    stop.set()
    words = ("--listen", "127.0.0.1:0", "--allow", "10.0.0.0/8", "--allow", "::/0", "--in-sync-replicas", "2")
    assert serve(stop, path, *words).text.endswith("physical offset 0, confirmed 0")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("{none}", "--listen", "127.0.0.1:0"), "no store that segmentlog wrote last is here"),
        (("{store}", "--listen", "127.0.0.1:0", "--allow", "nowhere"), "nowhere"),
        (("{store}", "--listen", "127.0.0.1:0", "--tls", "{store}/a.pem", "k", "ca"), "{store}/a.pem"),
    ],
)
def test_wrong_arguments(path: Path, tmp_path: Path, words: tuple[str, ...], found: str) -> None:
    ran = run_command("serve", *(word.format(none=tmp_path, store=path) for word in words))
    assert (ran.code, ran.out) == (2, b""), words
    assert found.format(store=path) in ran.err


@pytest.mark.slow
def test_it_is_found_again_after_a_restart(tmp_path: Path, path: Path) -> None:
    stop, port = threading.Event(), free_port()
    words = (path, "--listen", f"127.0.0.1:{port}", "--in-sync-replicas", "2")
    with following(tmp_path / "copy", port, store_config=PLAIN, probe_s=0.3) as replica:
        for serial in range(2):
            stop = threading.Event()
            server = threading.Thread(target=serve, args=(stop, *words))
            server.start()
            with MessageStore.open(path, PLAIN) as store:
                store.append(message(1, 1, serial))
                end = store.end_offset
            until(lambda: confirmed_offset(LocalWritableFileSystem(), str(path)) == end)  # noqa: B023
            assert replica.store.end_offset == end
            stop.set()
            server.join()
