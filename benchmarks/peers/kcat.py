"""kcat, the command of Kafka's users, against a broker on loopback.

::

    lines KEY<TAB>BODY ──► kcat -P ──► broker, 4 partitions ──► kcat -C -J ──► JSON lines

kcat is a package of Debian and Ubuntu (``apt-get install kcat``). `KCAT` names another place of the program.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from harness import UnavailableError

from .kafka_broker import broker

TOPIC = "bench"
PARTITIONS = 4
PRODUCER = ("-X", "batch.size=524288", "-X", "linger.ms=20")


class Kcat:
    """A broker that has messages, and kcat to read them. Use `running`."""

    def __init__(self, program: str, server: str) -> None:
        self._program = program
        self._server = server

    @classmethod
    @contextmanager
    def running(cls, folder: Path, lines: Path) -> Iterator[Self]:
        """Start a broker and send it the lines of a file.

        Raises
        ------
        UnavailableError
            If there is no kcat, or the broker does not start.
        """
        program = os.environ.get("KCAT") or shutil.which("kcat")
        if program is None:
            raise UnavailableError("there is no kcat on the PATH; on Debian and Ubuntu: apt-get install kcat")
        with broker(folder, PARTITIONS) as server:
            made = cls(program, server)
            made._run("-P", "-K", "\t", *PRODUCER, "-l", str(lines))
            yield made

    def json_lines(self, output: Path) -> None:
        """Write all messages as JSON lines."""
        self._run("-C", "-o", "beginning", "-e", "-q", "-J", output=output)

    def _run(self, *flags: str, output: Path = Path(os.devnull)) -> None:
        with output.open("wb") as stdout:
            subprocess.run([self._program, "-b", self._server, "-t", TOPIC, *flags], check=True, stdout=stdout)
