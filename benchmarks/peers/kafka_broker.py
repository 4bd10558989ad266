"""One Kafka broker on loopback, and the jars that it and Spark's Kafka source need.

::

    Maven ── jars ──► cache directory, once ──► one KRaft broker ◄──► Spark

The broker is stopped however the run ends: by the context manager, and by the kernel if this process dies first.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import UnavailableError

HERE = Path(__file__).parent / "kafka_jars"
MAVEN_SECONDS = 600
START_SECONDS = 60
STOP_SECONDS = 30
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def connector_jars() -> list[Path]:
    """Fetch the jars that Spark needs on its class path; they must be known before the session starts."""
    return _jars("connector")


@contextmanager
def broker(folder: Path, partitions: int) -> Iterator[str]:
    """Run one broker in KRaft mode; yield its address.

    ``partitions`` is the number of partitions of a topic that a producer creates by writing to it.
    """
    jars = _jars("broker")
    folder.mkdir()
    port, controller_port = _free_ports(2)
    server = f"127.0.0.1:{port}"
    properties = folder / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://{server},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{server}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "log",
        "num.partitions": partitions,
        "offsets.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.hours": -1,  # the rows are from 2023
        "log.message.timestamp.type": "LogAppendTime",
        "log.segment.delete.delay.ms": 1000,  # what a topic held, once it is deleted; a minute by default
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = [_java(), "-Xms1g", "-Xmx1g", "-cp", os.pathsep.join(map(str, jars))]
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    log = folder / "broker.log"
    with log.open("wb") as output:
        formatted = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)],
            stdout=output,
            stderr=output,
            check=False,
            timeout=START_SECONDS,
        )
        if formatted.returncode:
            raise _did_not_start(log)
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, no lock is taken
        )
        try:
            _await(process, port, log)
            yield server
        finally:
            _stop(process)


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise _did_not_start(log)


def _did_not_start(log: Path) -> UnavailableError:
    return UnavailableError(f"the Kafka broker did not start: {log.read_text(errors='replace')[-1000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _die_with_parent() -> None:
    """In the broker's process, before it runs: ask the kernel to end it when the runner has ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise UnavailableError("Kafka needs Java, and there is none")
    return java


def _jars(which: str) -> list[Path]:
    """Return the jars of ``kafka_jars/{which}.xml``, downloaded by Maven if they are not in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segmentlog-bench" / which
    wanted = (HERE / f"{which}.xml").read_bytes()
    fetched = cache / "fetched.xml"  # written last: what is there is whole, and of these versions
    if not fetched.exists() or fetched.read_bytes() != wanted:
        maven = shutil.which("mvn")
        if maven is None:
            raise UnavailableError("Kafka's jars are fetched with Maven, and there is no mvn on the PATH")
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={cache}"]
        try:
            done = subprocess.run(
                [maven, "-q", "-B", "-f", str(HERE / f"{which}.xml"), *goal],
                capture_output=True,
                text=True,
                timeout=MAVEN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"Maven did not fetch Kafka's jars within {MAVEN_SECONDS} s") from None
        if done.returncode:
            raise UnavailableError(f"Maven could not fetch Kafka's jars: {(done.stdout + done.stderr)[-1000:]}")
        fetched.write_bytes(wanted)
    return sorted(cache.glob("*.jar"))
