"""Job serve: it serves while others write, confirms what replicas hold, and says why it ended."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.jobs import serve
from segmentlog.store import BatchId, MessageStore, NotAStoreError, ReadFrom, StoreReader
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import FollowedLog
from segmentlog.store.log.confirmed import confirmed_offset
from segmentlog.store.sink import Staging, SyncReplication, commit_batch
from support.batches import batch_of
from support.certificates import MISSING, Authority
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
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_commits_wait_for_replicas_until_it_is_interrupted(tmp_path: Path, path: Path, sign: signal.Signals) -> None:
    with MessageStore.open(path, PLAIN) as store:
        store.append(message(1, 9, 0))  # an empty log is acknowledged after 5 s
    port = free_port()
    where = [str(path), "--listen", f"127.0.0.1:{port}", "--in-sync-replicas", "2", "--json"]
    command = [sys.executable, "-m", "segmentlog.jobs.serve", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with following(tmp_path / "copy", port, store_config=PLAIN, probe_s=0.3) as replica:
            for batch in range(4):
                with Staging.open(path, f"job{batch}", 0, "a", PLAIN) as staging:
                    staging.add(batch_of([message(1, batch, serial) for serial in range(30)]))
                    staged = [staging.finish()]
                waits = SyncReplication(timeout_s=60)
                committed = commit_batch(path, PLAIN, BatchId("q", batch), staged, replication=waits)
                assert replica.store.end_offset >= committed.stop
                assert confirmed_offset(LocalWritableFileSystem(), str(path)) == committed.stop
                assert len(list(read(StoreReader.open(path, read_from=ReadFrom.CONFIRMED)))) == 30 * (batch + 1) + 1
        os.kill(process.pid, sign)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    stop = committed.stop
    assert json.loads(out) == {"store": str(path), "end": stop, "confirmed": stop, "problem": "", "claimedEpoch": None}
    assert log_bytes(tmp_path / "copy")[:stop] == log_bytes(path)[:stop]


def test_arguments() -> None:
    parser = serve.command_line("serve", "")
    serve.add_arguments(parser)
    assert serve.parse(parser.parse_args(["s"])) == serve.Args(store="s")
    full = ["s", "--listen", "h:1", "--allow", "10.0.0.0/8", "--allow", "::/0", "--in-sync-replicas", "3", "--watch"]
    full += ["--tls", "c", "k", "a"]
    asked = serve.Args(
        store="s", listen="h:1", allowed=("10.0.0.0/8", "::/0"), in_sync_replicas=3, tls=("c", "k", "a"), watch=True
    )
    assert serve.parse(parser.parse_args(full)) == asked


def test_a_server_that_ends_by_itself_says_why(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(log: FollowedLog) -> int:
        raise RuntimeError("planted")

    monkeypatch.setattr(FollowedLog, "settled_offset", property(fail))
    report = serve.run(serve.Args(store=str(path), listen="127.0.0.1:0", watch=True), threading.Event())
    assert (report.has_findings, report.problem) == (True, "planted")
    assert str(report).endswith("served up to physical offset 0; the server ended: planted")
    assert [each.levelname for each in caplog.records if "replication server ended" in each.message] == ["ERROR"]


def test_allowed_networks_and_addresses_are_checked(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = threading.Event()
    stop.set()
    asked = serve.Args(store=str(path), listen="127.0.0.1:0", allowed=("10.0.0.0/8",), in_sync_replicas=2)
    assert str(serve.run(asked, stop)).endswith("physical offset 0, confirmed 0")
    assert serve.main([str(path), "--listen", "nowhere", "--json"]) == 2
    assert "the address 'nowhere' is not host:port" in json.loads(capsys.readouterr().out)["error"]["what"]
    with pytest.raises(NotAStoreError):
        serve.run(serve.Args(store=str(tmp_path), listen="127.0.0.1:0"), stop)


def test_files_for_tls_that_are_missing_end_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = [str(path / name) for name in ("a.pem", "a.key", "ca.pem")]
    assert serve.main([str(path), "--listen", "127.0.0.1:0", "--tls", *missing, "--json"]) == 2
    assert missing[0] in json.loads(capsys.readouterr().out)["error"]["what"]


@pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
def test_with_tls_only_replicas_of_the_authority_are_served(tmp_path: Path, path: Path) -> None:
    with MessageStore.open(path, PLAIN) as store:
        store.append(message(1, 1, 0))
        end = store.end_offset
    authority, stop, port = Authority(tmp_path / "authority"), threading.Event(), free_port()
    files, own = authority.sign("master"), authority.sign("replica")
    named = (files.certificate, files.key, files.authority)
    asked = serve.Args(store=str(path), listen=f"127.0.0.1:{port}", tls=named)
    server = threading.Thread(target=serve.run, args=(asked, stop))
    server.start()
    try:
        with following(tmp_path / "copy", port, store_config=PLAIN, probe_s=30, tls=own) as replica:
            until(lambda: replica.store.end_offset == end)
        with following(tmp_path / "plain", port, store_config=PLAIN) as refused:
            until(lambda: refused.status.problem != "")
            assert refused.store.end_offset == 0
    finally:
        stop.set()
        server.join()


@pytest.mark.slow
def test_it_is_found_again_after_a_restart(tmp_path: Path, path: Path) -> None:
    stop, port = threading.Event(), free_port()
    asked = serve.Args(store=str(path), listen=f"127.0.0.1:{port}", in_sync_replicas=2)
    with following(tmp_path / "copy", port, store_config=PLAIN, probe_s=0.3) as replica:
        for serial in range(3):
            stop = threading.Event()
            server = threading.Thread(target=serve.run, args=(asked, stop))
            server.start()
            with MessageStore.open(path, PLAIN) as store:
                store.append(message(1, 1, serial))
                end = store.end_offset
            until(lambda: confirmed_offset(LocalWritableFileSystem(), str(path)) == end)  # noqa: B023
            assert replica.store.end_offset == end
            stop.set()
            server.join()
