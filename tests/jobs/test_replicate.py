"""Job replicate: it follows until it is told to stop, and reports where it is."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.jobs import replicate
from segmentlog.store import MessageStore, Outgoing, SegmentLogError, StoreReader
from segmentlog.store.ha import Address, Replica, demote
from segmentlog.store.maintenance import verify
from support import promoted
from support.replicas import log_bytes, until
from support.scripted_master import ScriptedMaster
from support.written_stores import SMALL


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("master") / "first"
    with MessageStore.open(path, replace(SMALL, record_crc=False, segment_bytes=1 << 20)) as store:
        for number in range(50):
            store.append(Outgoing(topic="T", body=b"%d" % number))
        end = store.end_offset
    return (path / "commitlog" / f"{0:020d}").read_bytes()[:end]


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_interrupted(tmp_path: Path, log: bytes, sign: signal.Signals) -> None:
    with ScriptedMaster(log, 0, 1 << 20) as master:
        where = [f"127.0.0.1:{master.port}", str(tmp_path / "copy"), "--segment-bytes", str(1 << 20)]
        command = [sys.executable, "-m", "segmentlog.jobs.replicate", *where, "--json", "--watch"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            while master.reports[-1:] != [len(log)]:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.02)
            os.kill(process.pid, sign)
            out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    report = json.loads(out)
    assert (report["end"], report["lagBytes"], report["state"]) == (len(log), 0, "stopped")
    assert (tmp_path / "copy" / "commitlog" / f"{0:020d}").read_bytes()[: len(log)] == log


def test_arguments() -> None:
    args = replicate.Args(master="h:1", store="s")
    parser = replicate.command_line("replicate", "")
    replicate.add_arguments(parser)
    assert replicate.parse(parser.parse_args(["h:1", "s"])) == args
    full = ["h:1", "s", "--from", "last", "--flush", "sync", "--limit", "9", "--broker", "h:2", "--watch"]
    full += ["--tls", "a.pem", "a.key", "ca.pem"]
    asked = replace(args, begin="last", flush="sync", bytes_per_s=9, broker="h:2", watch=True)
    asked = replace(asked, tls=("a.pem", "a.key", "ca.pem"))
    assert replicate.parse(parser.parse_args(full)) == asked


def test_a_wrong_address_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replicate.main(["nowhere", str(tmp_path / "copy"), "--json"]) == 2
    assert "the address 'nowhere' is not host:port" in json.loads(capsys.readouterr().out)["error"]["what"]


def test_files_for_tls_that_are_missing_end_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], log: bytes) -> None:
    missing = [str(tmp_path / name) for name in ("a.pem", "a.key", "ca.pem")]
    with ScriptedMaster(log, 0, 1 << 20) as master:
        where = [f"127.0.0.1:{master.port}", str(tmp_path / "copy"), "--segment-bytes", str(1 << 20)]
        assert replicate.main([*where, "--tls", *missing, "--json"]) == 2
    assert missing[0] in json.loads(capsys.readouterr().out)["error"]["what"]


def test_a_status_is_one_line(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    report = replicate.run(
        replicate.Args(master="127.0.0.1:1", store=str(tmp_path / "copy"), segment_bytes=1 << 20), stop
    )
    assert str(report).endswith("stopped, log end 0, lag 0 bytes, unknown; 0 bytes over 0 connections")
    assert not report.has_findings


def followed(where: Sequence[str | Path], store: Path, end: int) -> None:
    """Run the job until its store ends at an offset."""
    stop, parser = threading.Event(), replicate.command_line("replicate", "")
    replicate.add_arguments(parser)
    args = replicate.parse(parser.parse_args([str(each) for each in where]))
    found: list[replicate.Report | Exception] = []

    def run() -> None:
        try:
            found.append(replicate.run(args, stop))
        except SegmentLogError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: bool(found) or StoreReader.open(store).readable_stop() == end)
    finally:
        stop.set()
        thread.join()
    assert isinstance(found[0], replicate.Report), found[0]


def test_a_demoted_store_of_any_file_sizes_follows_without_flags(tmp_path: Path) -> None:
    pair = promoted.part(tmp_path, old=30, new=90)
    with promoted.served(pair.new) as server:
        master = f"127.0.0.1:{server.port}"
        demote(pair.old, Address.parse(master))
        end = StoreReader.open(pair.new).readable_stop()
        followed([master, pair.old], pair.old, end)
        assert log_bytes(pair.old)[:end] == log_bytes(pair.new)[:end]
        with Replica.open(str(pair.old), Address.parse(master)) as replica:
            assert replica.store.config.index_slots == promoted.PLAIN.index_slots
    assert verify(pair.old).findings == ()


@pytest.mark.parametrize("flag", ["--segment-bytes", "--queue-segment-entries"])
def test_a_flag_that_is_not_the_stores_size_is_refused(
    tmp_path: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    MessageStore.open(tmp_path / "copy", SMALL).close()
    assert replicate.main(["127.0.0.1:1", str(tmp_path / "copy"), flag, "2048"]) == 2
    error = capsys.readouterr().err
    assert "2048, the store's files are made for" in error
    assert f"Leave out {flag}" in error or f"and {flag}" in error
