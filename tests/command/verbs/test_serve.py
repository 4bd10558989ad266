"""Verb ``serve``: until a signal ends it, with the report of the job."""

import json
import os
import signal
import threading
from pathlib import Path

from segmentlog.store import MessageStore
from support.commands import run_command
from support.ha import free_port
from support.replicas import following, until
from support.written_stores import SMALL, message


def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append(message(1, 1, 1))
        end = store.end_offset
    former, port = signal.getsignal(signal.SIGINT), free_port()
    with following(tmp_path / "copy", port, store_config=SMALL, probe_s=0.3) as replica:

        def interrupt() -> None:
            try:
                until(lambda: replica.status.end == end)
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        ran = run_command("serve", tmp_path / "store", "--listen", f"127.0.0.1:{port}", "--json")
        thread.join()
        assert replica.status.end == end
    assert (ran.code, json.loads(ran.out)["end"]) == (0, end)
    assert signal.getsignal(signal.SIGINT) is former


def test_wrong_arguments(tmp_path: Path) -> None:
    for words, found in (
        ((), "the following arguments are required: STORE"),
        ((tmp_path,), "no store that segmentlog wrote last is here"),
        ((tmp_path, "--listen", "nowhere"), "the address 'nowhere' is not host:port"),
        ((tmp_path, "--in-sync", "2"), "there is no flag `--in-sync`"),
    ):
        ran = run_command("serve", *words)
        assert (ran.code, ran.out) == (2, b""), words
        assert found in ran.err
