"""The command on a real terminal, of tmux: a live view, control characters, Ctrl-C."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, StoreConfig
from support.commands import INSTALLED, run_command

CONFIG = StoreConfig(segment_bytes=1 << 16, queue_segment_entries=100, index=False)
EVIL = "\x1b]2;owned\x07\x1b[31mred\x9b5m".encode()
PATIENCE_S = 300.0


class Terminal:
    """A shell in a terminal of 120 columns and 40 lines, by a tmux server of its own."""

    def __init__(self, folder: Path) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.log = folder / "log"
        environment = os.environ | {"PS1": "$ ", "PATH": f"{INSTALLED.parent}:{os.environ['PATH']}"}
        start = ["new-session", "-d", "-x", "120", "-y", "40", "bash", "--norc", "--noprofile"]
        subprocess.run([*self._tmux, *start], check=True, env=environment, timeout=PATIENCE_S)
        self.tmux("pipe-pane", f"cat > {self.log}")

    def tmux(self, *words: str) -> str:
        ran = subprocess.run([*self._tmux, *words], check=True, capture_output=True, timeout=PATIENCE_S)
        return ran.stdout.decode()

    def type(self, line: str) -> None:
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-J")

    def wait(self, text: str) -> str:
        """Wait until the screen has a text, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in (screen := self.screen):
            assert time.monotonic() < deadline, f"{text!r} does not appear:\n{screen}"
            time.sleep(0.05)
        return screen


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed on this machine")
    opened = Terminal(tmp_path_factory.mktemp("t"))
    yield opened
    opened.tmux("kill-server")


@pytest.mark.slow
def test_tail_follows_and_obeys_no_message(terminal: Terminal, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        store.append(Outgoing(topic="orders", body=b"before"))
        store.wait_dispatched()
        terminal.type(f"segmentlog tail {tmp_path}/s orders -f; echo code=$?")
        terminal.wait("before")
        store.append(Outgoing(topic="orders", body=EVIL, tags="\x1b[5m"))
        store.append(Outgoing(topic="orders", body=b"after"))
        store.wait_dispatched()
        screen = terminal.wait("after")
        assert "red" in screen
        terminal.tmux("send-keys", "C-c")
        terminal.wait("code=130")
    shown = terminal.log.read_bytes()
    assert b"\x1b]2;owned" not in shown
    assert b"\x1b[31mred" not in shown
    assert b"\xc2\x9b5m" not in shown
    assert terminal.tmux("display-message", "-p", "#{pane_title}").strip() != "owned"


def test_ctrl_c_keeps_the_lines_that_were_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segmentlog.command import incoming  # noqa: PLC0415 - patched below

    whole_lines = incoming._whole_lines

    def interrupted(stdin: object) -> Iterator[bytes]:
        yield from whole_lines(stdin)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(incoming, "_whole_lines", interrupted)
    ran = run_command("put", tmp_path / "s", "orders", "--create", stdin=b"one\ntwo\n")
    assert (ran.code, ran.out, ran.err) == (130, b"", "")
    monkeypatch.undo()
    rows = run_command("cat", tmp_path / "s", "orders", "--json").rows
    assert [row["body"] for row in rows] == ["one", "two"]
