"""Conversion of a trace: when each call is durable, overlaps of threads, and refused calls."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.crash.real_trace import TraceError, files_below, recording_of, trace
from support.crash.recorder import Kind, Recording
from support.crash.states import Breadth, States, labels
from support.strace import WHY_NOT

ROOT, MARKS = Path("/real/disk"), Path("/real/marks")


def _hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def _lines(*calls: str) -> list[str]:
    """Lines of a trace: ``[text]`` is a string or a path as the tracer prints it, each call of thread 1 if not said."""
    lines = []
    for call in calls:
        thread, _, rest = call.partition(" ") if call[0].isdigit() else ("1", "", call)
        parts = rest.split("[[")
        text = parts[0] + "".join(_hex(inside) + behind for inside, behind in (part.split("]]") for part in parts[1:]))
        lines.append(f"{thread} {text}")
    return lines


def _recording(*calls: str) -> Recording:
    return recording_of(_lines(*calls), ROOT, MARKS)[0]


OPEN = 'openat(AT_FDCWD<[[/]]>, "[[/real/disk/f]]", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0644) = 5<[[/real/disk/f]]>'
DIRECTORY = 'openat(AT_FDCWD<[[/]]>, "[[/real/disk]]", O_RDONLY|O_DIRECTORY) = 6<[[/real/disk]]>'
SYNC_NAMES = "fsync(6<[[/real/disk]]>) = 0"
MARK = 'write(7<[[/real/marks]]>, "[[1]]", 1) = 1'
CREATED = (OPEN, DIRECTORY, SYNC_NAMES)


def _write(text: str = "abc", at: int = 0, result: str = "3") -> str:
    return f'pwrite64(5<[[/real/disk/f]]>, "[[{text}]]", {len(text)}, {at}) = {result}'


def _contents(recording: Recording) -> set[bytes | None]:
    """Return the possible contents of the file from the moment of the mark on."""
    return {state.disk().files().get("/disk/f") for state in States(recording, Breadth()) if labels(recording, state)}


SYNC = "fdatasync(5<[[/real/disk/f]]>) = 0"
SYNC_BEGINS, SYNC_ENDS = "2 fdatasync(5<[[/real/disk/f]]> <unfinished ...>", "2 <... fdatasync resumed>) = 0"
WRITE_BEGINS, WRITE_ENDS = _write().replace(") = 3", " <unfinished ...>"), "1 <... pwrite64 resumed>) = 3"


@pytest.mark.parametrize(
    ("calls", "possible"),
    [
        ([*CREATED, _write(), SYNC, MARK], {b"abc"}),
        ([*CREATED, SYNC_BEGINS, _write(), SYNC_ENDS, SYNC, MARK], {b"abc"}),
        ([*CREATED, WRITE_BEGINS, SYNC_BEGINS, WRITE_ENDS, SYNC_ENDS, MARK], {b"", b"abc"}),
        ([*CREATED, _write(), SYNC_BEGINS, MARK, SYNC_ENDS], {b"", b"abc"}),
        ([DIRECTORY, f"2 {SYNC_NAMES}".replace(") = 0", " <unfinished ...>"), OPEN, "2 <... fsync resumed>) = 0", MARK],
         {None, b""}),
    ],
    ids=["before the sync", "a later sync", "overlaps the sync", "within the sync", "a name overlaps the sync"],
)  # fmt: skip
def test_a_call_is_durable_if_a_sync_began_after_its_end(calls: list[str], possible: set[bytes | None]) -> None:
    found = _contents(_recording(*calls))
    assert possible <= found
    assert len(possible) > 1 or found == possible


def test_mark_counts_from_when_it_began() -> None:
    mark = MARK.replace(") = 1", " <unfinished ...>")
    recording = _recording(
        *CREATED,
        mark,
        f"2 {_write()}",
        "2 fdatasync(5<[[/real/disk/f]]>) = 0",
        "1 <... write resumed>) = 1",
    )
    assert recording.marks == [(2, 1)]
    assert {b"", b"abc"} <= _contents(recording)


def test_calls_that_failed_and_other_files_are_left_out() -> None:
    recording = _recording(
        OPEN,
        _write(result="-1 ENOSPC (No space left on device)"),
        _write("abcdef", result="2"),
        'pwrite64(9<[[/elsewhere]]>, "[[abc]]", 3, 0) = 3',
        'rename("[[/elsewhere]]", "[[/other]]") = 0',
        'mkdir("[[/real/disk]]", 0777) = -1 EEXIST (File exists)',
        "mmap(NULL, 4096, PROT_READ, MAP_SHARED, 9<[[/elsewhere]]>, 0) = 0x7f0000000000",
    )
    assert [op.data for op in recording.ops] == [b"", b"ab"]


def test_pieces_are_put_together() -> None:
    pieces = '[{iov_base="[[ab]]", iov_len=2}, {iov_base="[[cde]]", iov_len=3}]'
    recording = _recording(OPEN, f"pwritev(5<[[/real/disk/f]]>, {pieces}, 2, 10) = 4")
    assert [(op.position, op.data) for op in recording.ops[1:]] == [(10, b"abcd")]


def test_a_reused_descriptor_is_another_file() -> None:
    other = OPEN.replace("disk/f", "disk/g")
    recording = _recording(
        OPEN, "2 close(5<[[/real/disk/f]]> <unfinished ...>", other, "2 <... close resumed>) = 0", _write()
    )
    assert [op.path for op in recording.ops] == ["/disk/f", "/disk/g", "/disk/g"]
    elsewhere = OPEN.replace("real/disk/f", "elsewhere")
    assert len(_recording(OPEN, "close(5<[[/real/disk/f]]>) = 0", elsewhere, _write()).ops) == 1


@pytest.mark.parametrize(
    "calls",
    [
        [OPEN, "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 5<[[/real/disk/f]]>, 0) = 0x7f0000000000"],
        [OPEN, "dup(5<[[/real/disk/f]]>) = 8", "mmap(NULL, 9, PROT_READ, MAP_SHARED, 8<[[/real/disk/f]]>, 0) = 0x7f00"],
        [OPEN, 'write(5<[[/real/disk/f]]>, "[[abc]]", 3) = 3'],
        [OPEN, _write(), OPEN.replace("O_CREAT|O_EXCL", "O_TRUNC")],
        [OPEN, _write(), "ftruncate(5<[[/real/disk/f]]>, 1) = 0"],
        [OPEN, "fallocate(5<[[/real/disk/f]]>, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 0, 4096) = 0"],
        [OPEN, _write().replace('"', '"...', 2).replace('"...', '"', 1)],
        [OPEN, "fdatasync(5<[[/real/disk/f]]>) = -1 EIO (Input/output error)"],
        [OPEN, "copy_file_range(9<[[/elsewhere]]>, NULL, 5<[[/real/disk/f]]>, NULL, 100, 0) = 100"],
        [OPEN, 'link("[[/real/disk/f]]", "[[/real/disk/g]]") = 0'],
        [OPEN, 'rename("[[/real/disk/f]]", "[[/elsewhere]]") = 0'],
        [OPEN, _write().replace(") = 3", " <unfinished ...>"), f"2 {_write()}", "1 <... pwrite64 resumed>) = 3"],
    ],
    ids=[
        "shared map", "shared map of a copy", "write without position", "truncated when opened", "shorter", "hole",
        "string in part", "failed sync", "copy_file_range", "link", "rename out of the store", "same bytes at once",
    ],
)  # fmt: skip
def test_a_trace_with_unmodelled_calls_is_refused(calls: Sequence[str]) -> None:
    with pytest.raises(TraceError):
        _recording(*calls)


PROGRAM = """
import mmap, os, sys, threading
disk, how = sys.argv[1:]
folder = os.open(disk, os.O_RDONLY | os.O_DIRECTORY)
file = os.open("made", os.O_RDWR | os.O_CREAT | os.O_EXCL, dir_fd=folder)
os.posix_fallocate(file, 0, 8192)
def write(thread):
    for number in range(20):
        os.pwrite(file, bytes([1 + thread]) * 50, 4096 * thread + 50 * number)
        os.fdatasync(file)
threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
os.mkdir(disk + "/sub")
os.rename(disk + "/made", disk + "/sub/kept")
os.pwritev(file, [b"piece"] * 1000, 9000)
other = os.open(disk + "/gone", os.O_RDWR | os.O_CREAT)
os.unlink(disk + "/gone")
os.pwrite(other, b"nobody sees this", 0)
os.fsync(folder)
marks = os.open(os.path.dirname(disk) + "/marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(marks, b'"told"')
if how == "map":
    mmap.mmap(file, 4096)[0] = 1
"""


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")
@pytest.mark.parametrize("how", ["calls", "map"])
def test_trace_of_a_real_program(how: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    trace([sys.executable, "-c", PROGRAM, str(disk), how], tmp_path / "trace")
    lines = (tmp_path / "trace").read_text(encoding="ascii").splitlines()
    if how == "map":
        with pytest.raises(TraceError, match="is mapped"):
            recording_of(lines, disk, tmp_path / "marks")
        return
    recording, replayed = recording_of(lines, disk, tmp_path / "marks")
    assert replayed.files() == dict(files_below(disk))
    assert len(replayed.files()["/disk/sub/kept"]) == 14_000
    assert [label for _, label in recording.marks] == ["told"]
    assert sum(op.kind is Kind.SYNC for op in recording.ops) == 40
