import argparse
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.command import progress
from segmentlog.command.catalogue import find_verb
from segmentlog.command.console import Console
from segmentlog.command.verbs.replicate import replicate
from segmentlog.store import MessageStore, Outgoing
from segmentlog.store.ha import Address, Replica, demote
from support import promoted
from support.commands import run_command
from support.replicas import until
from support.scripted_master import ScriptedMaster
from support.written_stores import SMALL

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
    monkeypatch.setattr(progress, "_TERMINAL_S", 0.01)
    former = signal.getsignal(signal.SIGINT)
    with ScriptedMaster(log, 0, SEGMENT_BYTES) as master:

        def interrupt() -> None:
            try:
                followed_until(master, len(log))
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        where = f"127.0.0.1:{master.port}", tmp_path / "copy", "--segment-bytes", SEGMENT_BYTES
        ran = run_command("replicate", *where, "--json", "--watch", terminal=is_terminal)
        thread.join()
    report = json.loads(ran.out)
    assert (ran.code, report["end"], report["lagBytes"], report["state"]) == (0, len(log), 0, "stopped")
    assert (tmp_path / "copy" / "commitlog" / f"{0:020d}").read_bytes()[: len(log)] == log
    assert ("MiB/s" in ran.err) == is_terminal
    assert signal.getsignal(signal.SIGINT) is former


def test_files_for_tls_that_are_missing_end_it(tmp_path: Path, log: bytes) -> None:
    missing = [str(tmp_path / name) for name in ("a.pem", "a.key", "ca.pem")]
    with ScriptedMaster(log, 0, SEGMENT_BYTES) as master:
        where = [f"127.0.0.1:{master.port}", tmp_path / "copy", "--segment-bytes", SEGMENT_BYTES]
        assert missing[0] in run_command("replicate", *where, "--tls", *missing, "--json").error["found"]


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
    MessageStore.open(tmp_path / "copy", SMALL).close()
    ran = run_command("replicate", "127.0.0.1:1", tmp_path / "copy", flag, "2048")
    assert ran.code == 2
    assert "2048, the store's files are made for" in ran.err
    assert f"Leave out {flag}" in ran.err or f"and {flag}" in ran.err
