"""Planted names and files: nothing outside the store is opened, nothing hangs, and each error says where.

::

    names     topic directories ─┐
              queue directories ─┤
              segment files     ─┼──► Snapshot ──► rows, or an error of ours; opens stay under the root
              topics in records ─┤
              topics asked for  ─┤
              consumer offsets  ─┘
    files     links, FIFOs, sockets, devices, directories, unreadable files, in place of a plain file or directory
"""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, SegmentLogError, Services, StoreConfig
from segmentlog.store.format import batch_mark
from segmentlog.store.groups import publish_progress
from support.scale import sample
from support.store_builder import Geometry, Queues, StoreBuilder, messages

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

PROBE = Path(__file__).parent / "probe.py"
GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=10)
COUNT = 40
FIRST = f"{0:020d}"
SECOND = f"{4096:020d}"

Found = dict[str, Any]

CONTROL = [f"T{chr(code)}x" for code in (*range(1, 32), 127, *range(0x80, 0xA0))]
UNDECODABLE = [os.fsdecode(raw) for raw in (b"\xff", b"T\xfe\xff", b"\xc0\xae\xc0\xae", b"\xed\xa0\x80", b"caf\xe9")]
INVISIBLE = [f"T{mark}x" for mark in "\u200b\u200e\u202e\u2028\u2029\ufeff\u00ad\u2060"]
TRAVERSAL = [
    *("..", ".", "", "/", "//", "../..", "../outside", "../../outside", "/etc", "/etc/passwd", "a/../../outside"),
    *("./Orders", "Orders/", "Orders/0", "Orders/../Orders", "../Orders", "..\\outside", "\0", "Orders\0", "a\0/.."),
    *("%RETRY%..", "%RETRY%../x", "%DLQ%/../..", "%LMQ%a/b", "%LMQ%../../x", "/proc/self/fd", "/dev/zero"),
]
ODD = [
    *("orders", "ORDERS", " Orders", "Orders ", "Orders.", "...", ".Orders", "~", "~root", "$HOME", "*", "?", "[a-z]"),
    *("${jndi:ldap://x}", "`id`", "$(id)", "%s", "%n", "{0}", "{}", "-rf", "--", "'", '"', ";", "&", "|", "<b>", "#"),
    *("%2e%2e%2foutside", "..%00", "．．", "‥", "․․", "Ordérs", "Orde\u0301rs", "ﬀ", "İ", "ı", "ß", "0", "-1", FIRST),
    *("commitlog", "consumequeue", "config", "index", "lock", "abort", "CON", "NUL", "x" * 127, "x" * 128, "x" * 255),
    *("x" * 256, "x" * 300, "x" * 5000, "é" * 127, "é" * 128, "\U0001f600" * 63),
]
NAMES = [*TRAVERSAL, *ODD, *INVISIBLE, *UNDECODABLE, *CONTROL]
QUEUE_NAMES = [
    *("00", "01", "+1", "-0", "-1", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "1_0", "１", "٣", "²", "১", "Ⅷ"),
    *("2147483648", "99999999999", "9" * 255, ".0", "..0", "0..", "\x7f", os.fsdecode(b"1\xff")),
]
SEGMENT_NAMES = [
    *("0" * 21, "-" + "0" * 19, "+" + "0" * 19, "0" * 19 + "１", "٠" * 20, "9" * 20, f"{(1 << 63) - 1:020d}"),
    *(f"{1 << 63:020d}", f"{(1 << 63) - 20:020d}", f"{1 << 40:020d}", f"{7:020d}", f"{4097:020d}", f"{FIRST}.tmp"),
    *(f"{FIRST}~", f".{FIRST}", f" {FIRST}", f"{FIRST}\n", "0x" + "0" * 18, os.fsdecode(b"0" * 19 + b"\xff")),
]
assert len(set(NAMES)) > 150
assert len({*NAMES, *QUEUE_NAMES, *SEGMENT_NAMES}) >= 200
PROBES: dict[tuple[str, ...], "subprocess.Popen[str]"] = {}
TRIED = sample(NAMES, 50)
"""Names of directories and documents, each in a store of its own."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    store = tmp_path_factory.mktemp("hostile") / "clean"
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
        builder.append(messages(COUNT, queues=2))
    assert (store / "commitlog" / SECOND).exists()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@group":{0:3}}}')
    (store / ".segmentlog").mkdir()
    (store / ".segmentlog" / "batch").write_bytes(batch_mark.encode(batch_mark.NO_BATCH))
    (store / ".segmentlog" / "groups.json").write_text("{}")
    yield store
    for process in PROBES.values():
        process.communicate()
    PROBES.clear()


def probe(clean: Path, cases: Sequence[Found], *arguments: str) -> dict[str, Found]:
    """Read each store in another process, which all tests share; findings by the names of the cases."""
    if arguments not in PROBES:
        command = [sys.executable, "-X", "faulthandler", str(PROBE), *arguments]
        PROBES[arguments] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        tell(PROBES[arguments], {"name": "", "store": str(clean)})
    process = PROBES[arguments]
    assert process.stdout is not None
    findings = {}
    for case in cases:
        tell(process, case)
        line = process.stdout.readline()
        assert line, f"{case}: the process ended with {process.wait()}"
        findings[case["name"]] = json.loads(line)
        assert findings[case["name"]]["name"] == case["name"]
    return findings


def tell(process: "subprocess.Popen[str]", case: Found) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(case) + "\n")
    process.stdin.flush()


def copies(clean: Path, folder: Path, names: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for number, name in enumerate(names):
        yield name, Path(shutil.copytree(clean, folder / str(number) / "store"))


def can_be_made(name: str) -> bool:
    return "/" not in name and "\0" not in name and name not in {"", ".", ".."} and len(os.fsencode(name)) <= 255


def complaints(found: Found, rows: int) -> list[str]:
    """Return the faults of a result that should be the rows of a store."""
    wrong = [f"opened {path}" for path in found["escaped"]]
    if found.get("rows") != rows:
        wrong.append(f"{found.get('error', 'rows')}: {found.get('text', found.get('rows'))}")
    return wrong


def check(findings: dict[str, Found], rows: int = COUNT) -> None:
    wrong = {name: complaints(found, rows) for name, found in findings.items()}
    assert {name: what for name, what in wrong.items() if what} == {}


def test_topic_directories(clean: Path, tmp_path: Path) -> None:
    names = [name for name in TRIED if can_be_made(name) and name != "Orders"]
    cases = []
    for name, store in copies(clean, tmp_path, names):
        shutil.copytree(store / "consumequeue" / "Orders" / "0", store / "consumequeue" / name / "0")
        cases.append({"name": name, "store": str(store)})
    findings = probe(clean, cases)
    for name, found in findings.items():
        assert set(found.get("topics", ())) <= {"Orders", name}
        assert (name in found.get("topics", ())) == name.isprintable()
    # Where the name can be a topic its queue names records of another one: damaged rows, each found out.
    check({name: found for name, found in findings.items() if not name.isprintable()})
    check({name: found for name, found in findings.items() if name.isprintable()}, rows=COUNT + COUNT // 2)


def test_queue_directories(clean: Path, tmp_path: Path) -> None:
    cases = []
    for name, store in copies(clean, tmp_path, sample(QUEUE_NAMES, 10)):
        shutil.copytree(store / "consumequeue" / "Orders" / "0", store / "consumequeue" / "Orders" / name)
        cases.append({"name": name, "store": str(store)})
    check(probe(clean, cases))


@pytest.mark.parametrize("where", ["commitlog", "consumequeue/Orders/0"])
def test_segment_files(clean: Path, tmp_path: Path, where: str) -> None:
    cases = []
    for name, store in copies(clean, tmp_path, sample(SEGMENT_NAMES, 10)):
        shutil.copy(store / where / FIRST, store / where / name)
        cases.append({"name": name, "store": str(store)})
    check(probe(clean, cases))


def test_topics_that_a_caller_asks_for(clean: Path) -> None:
    cases = [
        {"name": name, "store": str(clean), "keys": [[name, 0], [name, -1], [name, 1 << 40]]}
        for name in TRIED
        if name != "Orders"
    ]
    findings = probe(clean, cases)
    check(findings)
    for name, found in findings.items():
        for asked in found["asked"][:3]:
            if name.isprintable() and can_be_made(name):
                assert asked["rows"] == 0
            else:
                assert asked["error"] == "UnknownQueueError"
                assert str(clean) in asked["text"]
                assert asked["text"].isprintable()


def test_topics_in_consumer_offsets(clean: Path, tmp_path: Path) -> None:
    cases = []
    written = [name for name in TRIED if name and "@" not in name]
    for name, store in copies(clean, tmp_path, written):
        document = {"offsetTable": {f"{name}@group": {"0": 7}, f"Orders@../{name}": {"0": 1}}}
        (store / "config" / "consumerOffset.json").write_text(json.dumps(document))
        cases.append({"name": name, "store": str(store)})
    check(probe(clean, cases))


@pytest.mark.parametrize("left_by", ["no queues", "a crash"])
def test_topics_in_records(clean: Path, tmp_path: Path, left_by: str) -> None:
    names = [name for name in NAMES if name and len(os.fsencode(name)) <= 120]
    store = tmp_path / "store"
    queues = Queues.WRITTEN if left_by == "a crash" else Queues.MISSING
    with StoreBuilder(store, geometry=Geometry(segment_bytes=1 << 16, queue_segment_entries=10), queues=queues) as out:
        out.append(messages(4, topic="Orders"))
        places = [
            out.append(messages(1, topic="x" * len(os.fsencode(name)), queues=1)).physical_offsets[0] for name in names
        ]
    log = store / "commitlog" / FIRST
    data = bytearray(log.read_bytes())
    for place, name in zip(places, names, strict=True):
        raw = os.fsencode(name)
        at = data.index(b"x" * len(raw), place)
        data[at : at + len(raw)] = raw
    log.write_bytes(data)
    if left_by == "a crash":
        for folder in (store / "consumequeue").iterdir():
            if folder.name != "Orders":
                shutil.rmtree(folder)
        (store / "abort").touch()
    (found,) = probe(clean, [{"name": "records", "store": str(store)}]).values()
    expected = {name for name in names if name.isprintable() and "/" not in name and name not in {".", ".."}}
    assert "topics" in found, found
    assert set(found["topics"]) == expected | {"Orders"}
    check({"records": found}, rows=4 + sum(name in expected for name in names))


def test_paths(clean: Path, tmp_path: Path) -> None:
    """The root itself and commitLogPaths: what is no directory is no store."""
    roots = [str(tmp_path / name) for name in NAMES if name and not name.startswith(("/", ".."))]
    findings = probe(clean, [{"name": root, "store": root} for root in roots if not os.path.lexists(root)])
    assert {found["error"] for found in findings.values()} == {"NotAStoreError"}
    for root, found in findings.items():
        assert found["path"] == os.path.abspath(root)


# Plants: each makes something of a path, and says what must come of it.


def outside_of(path: Path) -> Path:
    store = next(parent for parent in path.parents if parent.name == "store")
    return Path(tempfile.mkdtemp(dir=store.parent)) / "moved"


def link_to_copy(path: Path) -> None:
    outside = outside_of(path)
    path.rename(outside)
    path.symlink_to(outside)


def dangling_link(path: Path) -> None:
    remove(path)
    path.symlink_to(outside_of(path))


def link_to_itself(path: Path) -> None:
    remove(path)
    path.symlink_to(path)


def fifo(path: Path) -> None:
    remove(path)
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    remove(path)
    with socket.socket(socket.AF_UNIX) as bound, tempfile.TemporaryDirectory() as short:
        bound.bind(f"{short}/s")  # paths of sockets have at most 108 bytes
        os.rename(f"{short}/s", path)


def device(path: Path) -> None:
    remove(path)
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero: a read of all of it never ends


def directory(path: Path) -> None:
    remove(path)
    path.mkdir()


def plain_file(path: Path) -> None:
    remove(path)
    path.write_bytes(b"0123456789")


def hard_link(path: Path) -> None:
    os.link(path, outside_of(path))


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


Plant = Callable[[Path], None]

LINKS: tuple[Plant, ...] = (link_to_copy, dangling_link, link_to_itself)
SPECIAL: tuple[Plant, ...] = (fifo, unix_socket, device)
SEGMENTS = [f"{folder}/{FIRST}" for folder in ("commitlog", "consumequeue/Orders/0", "consumequeue/Orders/1")]
SEGMENTS.append(f"commitlog/{SECOND}")
DIRECTORIES = ["commitlog", "consumequeue", "config", ".segmentlog"]
BELOW = ["consumequeue/Orders", "consumequeue/Orders/0"]
FILES = ["config/consumerOffset.json", "abort", ".segmentlog/batch", ".segmentlog/groups.json"]
REFUSED = [
    *product(SEGMENTS + FILES, (*LINKS, *SPECIAL, directory)),
    *product(DIRECTORIES, (*LINKS, *SPECIAL, plain_file)),
    *product(BELOW, LINKS),
]
HARMLESS = [
    *product(SEGMENTS, (hard_link,)),
    *product(["lock"], (*LINKS[1:], *SPECIAL, directory)),
    *product(["checkpoint"], (*LINKS, *SPECIAL, directory)),
    *product(["consumequeue/Other", "consumequeue/Orders/7"], (*SPECIAL, plain_file)),
    *product(["commitlog/notes.txt", "commitlog/lost+found"], (dangling_link, *SPECIAL, plain_file, directory)),
]


def planted(clean: Path, folder: Path, plants: Sequence[tuple[str, Plant]]) -> dict[str, Found]:
    chosen = {
        f"{plant.__name__} {place}": (place, plant)
        for place, plant in plants
        if plant is not device or os.geteuid() == 0  # only root can make one
    }
    cases = []
    for name, store in copies(clean, folder, list(chosen)):
        place, plant = chosen[name]
        if place == "abort":
            (store / place).touch()
        plant(store / place)
        cases.append({"name": name, "store": str(store), "place": str(store / place)})
    findings = probe(clean, cases)
    for case in cases:
        findings[case["name"]]["place"] = case["place"]
    return findings


def test_links_fifos_and_devices_are_refused(clean: Path, tmp_path: Path) -> None:
    for name, found in planted(clean, tmp_path, sample(REFUSED, 36)).items():
        assert found.get("error") == "UnsafeFileError", (name, found)
        assert found["path"] == found["place"], name
        assert found["escaped"] == [], name


def test_unread_files_are_harmless(clean: Path, tmp_path: Path) -> None:
    check(planted(clean, tmp_path, sample(HARMLESS, 16)))


UNREADABLE = [*SEGMENTS, "commitlog", "consumequeue", *BELOW, "config/consumerOffset.json", "."]


def test_unreadable_files_are_named(clean: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:  # pytest's own folders admit no other user
        folder = Path(temporary)
        folder.chmod(0o755)
        cases = []
        for place, store in copies(clean, folder, UNREADABLE):
            for path in (store.parent, store, *store.rglob("*")):
                path.chmod(0o755)
            (store / place).chmod(0)
            cases.append({"name": place, "store": str(store)})
        findings = probe(clean, cases, *(["--nobody"] if os.geteuid() == 0 else []))
        for case in cases:  # so that the folder can be removed
            (Path(case["store"]) / case["name"]).chmod(0o755)
    for case in cases:
        found = findings[case["name"]]
        assert found.get("error") == "UnreadableError", found
        assert found["path"] == os.path.normpath(Path(case["store"]) / case["name"])
        assert "may not read" in found["text"]


def test_the_probe_sees_reads_outside_of_the_store(clean: Path, tmp_path: Path) -> None:
    """A check that can fail: segments in another directory are outside of the root."""
    store = tmp_path / "store"
    shutil.copytree(clean, store)
    (store / "commitlog").rename(tmp_path / "elsewhere")
    case = {"name": "elsewhere", "store": str(store), "commit_log_paths": [str(tmp_path / "elsewhere")]}
    (found,) = probe(clean, [case]).values()
    assert found["rows"] == COUNT
    assert {os.path.dirname(path) for path in found["escaped"]} == {str(tmp_path), str(tmp_path / "elsewhere")}


@pytest.mark.scaled(quick=8)
@pytest.mark.parametrize("plant", [*LINKS, *SPECIAL, directory], ids=lambda plant: plant.__name__)
@pytest.mark.parametrize(
    "place", [".segmentlog", ".segmentlog/groups.lock", ".segmentlog/durable", ".segmentlog/id", "checkpoint", "abort"]
)
@pytest.mark.timeout(20)
def test_a_writer_neither_leaves_the_store_nor_hangs(tmp_path: Path, place: str, plant: Plant) -> None:
    """A file that a writer opens or locks is repaired, or named by an error of the store; nothing outside changes."""
    if plant is device and os.geteuid():
        pytest.skip("only root can make a device")
    store = tmp_path / "store"
    with MessageStore.open(store, WRITTEN) as opened:
        opened.append(Outgoing(topic="T", queue_id=0, body=b"body"))
    publish_progress(str(store), "group", {QueueKey("T", 0): 1})
    if not (store / place).exists():
        (store / place).touch()
    plant(store / place)
    moved = {path: path.read_bytes() for path in tmp_path.rglob("moved*") if path.is_file()}
    refused = []
    for write in (write_a_message, write_a_group):
        try:
            write(store)
        except SegmentLogError as error:
            refused.append(error)
    for error in refused:
        assert error.path is not None
        assert error.path.startswith(str(store / place))
        assert error.fix
    assert moved == {path: path.read_bytes() for path in moved}


WRITTEN = StoreConfig(segment_bytes=1 << 14, queue_segment_entries=20, index=False, services=Services.ON_CALL)


def write_a_message(store: Path) -> None:
    with MessageStore.open(store, WRITTEN) as opened:
        opened.append(Outgoing(topic="T", queue_id=0, body=b"another"))


def write_a_group(store: Path) -> None:
    publish_progress(str(store), "group", {QueueKey("T", 0): 2})
