import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.command import console
from segmentlog.command.catalogue import find_verb
from segmentlog.command.console import Console
from segmentlog.command.output.reports import Report
from segmentlog.command.verbs import replication as verb
from segmentlog.command.verbs.replication import replicate
from segmentlog.store import BatchId, MessageStore, Outgoing, ReadFrom, Snapshot
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import Address, FollowedLog, Replica, demote
from segmentlog.store.log.confirmed import confirmed_offset
from segmentlog.store.sink import Staging, SyncReplication, commit_batch
from support import promoted
from support.batches import batch_of
from support.commands import run_command
from support.ha import free_port
from support.promoted import PLAIN, append, part, served
from support.reading import read
from support.replicas import following, log_bytes, until
from support.scripted_master import ScriptedMaster
from support.written_stores import SMALL, message

SEGMENT_BYTES = 1 << 20


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("master") / "first"
    with MessageStore.open(path, replace(SMALL, record_crc=False, segment_bytes=SEGMENT_BYTES)) as store:
        for number in range(50):
            store.append(Outgoing(topic="T", body=b"%d" % number))
        end = store.end_offset
    return (path / "commitlog" / f"{0:020d}").read_bytes()[:end]


def followed_until(master: ScriptedMaster, end: int) -> None:
    """Wait until the replica has acknowledged a physical offset."""
    until(lambda: master.reports[-1:] == [end])


@pytest.mark.parametrize("is_terminal", [False, True])
def test_ctrl_c_ends_it_and_watch_shows_a_status(
    tmp_path: Path, log: bytes, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_TERMINAL_S", 0.01)
    former, shown = signal.getsignal(signal.SIGINT), threading.Event()
    heard = logging.Handler()
    heard.emit = lambda record: shown.set() if "MiB/s" in record.getMessage() else None  # type: ignore[method-assign]
    logging.getLogger("segmentlog").addHandler(heard)
    with ScriptedMaster(log, 0, SEGMENT_BYTES) as master:

        def interrupt() -> None:
            try:
                followed_until(master, len(log))
                assert not is_terminal or shown.wait(60)
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        where = f"127.0.0.1:{master.port}", tmp_path / "copy", "--segment-bytes", SEGMENT_BYTES
        ran = run_command("replicate", *where, "--json", "--watch", terminal=is_terminal)
        thread.join()
    logging.getLogger("segmentlog").removeHandler(heard)
    report = json.loads(ran.out)
    assert (ran.code, report["end"], report["lagBytes"], report["state"]) == (0, len(log), 0, "stopped")
    assert (tmp_path / "copy" / "commitlog" / f"{0:020d}").read_bytes()[: len(log)] == log
    assert ("MiB/s" in ran.err) == is_terminal
    assert signal.getsignal(signal.SIGINT) is former


def asked(*words: object) -> argparse.Namespace:
    return find_verb("replicate").parser().parse([str(each) for each in words])


def test_a_status_is_one_line(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    options = asked("127.0.0.1:1", tmp_path / "copy", "--segment-bytes", SEGMENT_BYTES)
    report = replicate(options, Console.of_process(), stop)
    assert report.text.endswith("stopped, log end 0, lag 0 bytes, unknown; 0 bytes over 0 connections")
    assert not report.has_findings


def test_a_demoted_store_of_any_file_sizes_is_opened_without_flags(tmp_path: Path) -> None:
    """It follows then: tests/store/ha/test_promotion.py."""
    pair, stop = promoted.part(tmp_path, old=30, new=90), threading.Event()
    stop.set()
    with promoted.served(pair.new) as server:
        master = f"127.0.0.1:{server.port}"
        demote(pair.old, Address.parse(master))
        assert not replicate(asked(master, pair.old), Console.of_process(), stop).has_findings
        with Replica.open(str(pair.old), Address.parse(master)) as replica:
            assert replica.store.config.index_slots == promoted.PLAIN.index_slots


@pytest.mark.parametrize("flag", ["--segment-bytes", "--queue-segment-entries"])
def test_a_flag_that_is_not_the_stores_size_is_refused(tmp_path: Path, flag: str) -> None:
    with MessageStore.open(tmp_path / "copy", SMALL) as store:
        store.append(Outgoing(topic="T", body=b"1"))
    ran = run_command("replicate", "127.0.0.1:1", tmp_path / "copy", flag, "2048")
    assert ran.code == 2
    assert "2048, the store's files are made for" in ran.err
    assert f"Leave out {flag}" in ran.err or f"and {flag}" in ran.err


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
                assert len(list(read(Snapshot.open(path, read_from=ReadFrom.CONFIRMED)))) == 30 * (batch + 1) + 1
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
        (("{none}", "--listen", "127.0.0.1:0"), "this directory holds no RocketMQ store"),
        (("{store}", "--listen", "127.0.0.1:0", "--in-sync-replicas", "0"), "--in-sync-replicas is 0"),
        (("{store}", "--listen", "127.0.0.1:0", "--allow", "nowhere"), "--allow names 'nowhere'"),
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


def test_the_report_names_epoch_and_start(tmp_path: Path) -> None:
    path = tmp_path / "store"
    end = append(path, range(5))
    ran = run_command("promote", path, "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"store": str(path), "epoch": 1, "start": end, "copy": None})
    ran = run_command("promote", path)
    assert ran.code == 0
    assert f"master of epoch 2, which begins at physical offset {end}" in ran.text


def test_a_store_in_use_and_a_path_without_a_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", PLAIN):
        assert run_command("promote", tmp_path / "store", "--json").error["code"] == "SEGMENTLOG_STORE_IN_USE"
    ran = run_command("promote", tmp_path / "nothing")
    assert (ran.code, ran.out) == (2, b"")
    assert not (tmp_path / "nothing").exists()


def test_the_report_states_the_part_that_is_cut_off(tmp_path: Path) -> None:
    pair = part(tmp_path, old=5, new=5)
    with served(pair.new) as server:
        asked = ["demote", pair.old, "--master", f"127.0.0.1:{server.port}"]
        planned = run_command(*asked, "--dry-run")
        assert planned.code == 1
        assert f"from physical offset {pair.parting} on" in planned.text
        assert "would be cut off, and copied to" in planned.text
        cut = run_command(*asked, "--json")
        again = run_command(*asked)
    found = json.loads(cut.out)
    assert (cut.code, found["start"], found["epoch"], found["dryRun"]) == (1, pair.parting, 1, False)
    assert Path(found["copy"]).is_dir()
    assert again.code == 0
    assert "nothing to cut off; it can follow the master of epoch 1" in again.text
