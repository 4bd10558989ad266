"""The command on a real terminal, of tmux: live views, progress, control characters, Ctrl-C, closed pipes."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, StoreConfig
from support.commands import INSTALLED, run_command
from support.small_store import write_small_store

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


@pytest.mark.slow
def test_progress_is_shown_and_removed(terminal: Terminal, tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    terminal.type(f"segmentlog verify {store}; echo code=$?")
    screen = terminal.wait("code=0")
    assert "nothing is wrong" in screen
    assert "CommitLog segment" not in screen
    assert "CommitLog segment" in terminal.log.read_text(errors="replace")


@pytest.mark.slow
def test_a_dumped_and_a_printed_message_are_harmless(terminal: Terminal, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        store.append(Outgoing(topic="orders", body=EVIL, keys="\x1b]2;owned\x07"))
    terminal.type(
        f"S={tmp_path}/s; for f in table csv; do segmentlog cat $S orders -o $f; done; "
        "segmentlog cat $S orders -f '%s %k\\n'; segmentlog dump $S --physical-offset 0; echo code=$?"
    )
    terminal.wait("code=0")
    shown = terminal.log.read_bytes()
    assert b"\x1b]2;owned" not in shown
    assert b"\x1b[31mred" not in shown


@pytest.mark.slow
def test_a_reader_that_takes_one_line(store: Path) -> None:
    program = f"set -o pipefail; {INSTALLED} cat {store} orders payments --json | head -1 | wc -l"
    ran = subprocess.run(["bash", "-c", program], capture_output=True, check=False, timeout=PATIENCE_S)
    assert (ran.stdout.strip(), ran.stderr) == (b"1", b"")
    assert ran.returncode in {0, 141}  # 0 if all rows were in the pipe before head ended


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
