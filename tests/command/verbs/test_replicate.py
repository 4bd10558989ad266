"""Verb ``replicate``: until a signal ends it, with the report of the job."""

import json
import os
import signal
import threading
import time
from pathlib import Path

from segmentlog.store import MessageStore, Outgoing, StoreConfig
from support.commands import run_command
from support.scripted_master import ScriptedMaster

SEGMENT_BYTES = 1 << 20


def test_it_replicates_until_ctrl_c(tmp_path: Path) -> None:
    config = StoreConfig(segment_bytes=SEGMENT_BYTES, record_crc=False)
    with MessageStore.open(tmp_path / "master", config) as store:
        for number in range(20):
            store.append(Outgoing(topic="T", body=b"%d" % number))
        end = store.end_offset
    log = (tmp_path / "master" / "commitlog" / f"{0:020d}").read_bytes()[:end]
    former = signal.getsignal(signal.SIGINT)
    with ScriptedMaster(log, 0, SEGMENT_BYTES) as master:

        def interrupt() -> None:
            deadline = time.monotonic() + 60
            while master.reports[-1:] != [end] and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        where = f"127.0.0.1:{master.port}", tmp_path / "copy"
        ran = run_command("replicate", *where, "--segment-bytes", SEGMENT_BYTES, "--json")
        thread.join()
    report = json.loads(ran.out)
    assert (ran.code, report["end"], report["lagBytes"]) == (0, end, 0)
    assert signal.getsignal(signal.SIGINT) is former


def test_wrong_arguments(tmp_path: Path) -> None:
    for words, found in (
        ((), "the following arguments are required: BROKER:HAPORT, REPLICA"),
        (("nowhere", tmp_path / "copy"), "nowhere"),
        (("h:1", tmp_path / "copy", "--flush", "often"), "invalid choice: 'often'"),
        (("h:1", tmp_path / "copy", "--form", "last"), "Did you mean `--from`?"),
    ):
        ran = run_command("replicate", *words)
        assert (ran.code, ran.out) == (2, b""), words
        assert found in ran.err
    assert not (tmp_path / "copy").exists()
