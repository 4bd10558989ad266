"""Two things that pyproject.toml cannot say: the description for package indexes, and the compression of the wheel.

An index shows the description, README.md, without the repository around it, so a relative link leads nowhere there.
Each becomes its text and the path of the page, which is in the source distribution. The list of pages is left out.
"""

import re
import zlib
from pathlib import Path
from unittest import mock

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

README = Path(__file__).parent / "README.md"


def without_relative_links(text: str) -> str:
    """Replace links into the repository by their text and the path."""

    def shown(link: re.Match[str]) -> str:
        label, path = link["label"], link["path"]
        return f"`{path}`" if label == path else f"{label} (`{path}`)"

    text = re.sub(r"^## Documents\n.*?(?=^Apache License)", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\[(?P<label>[^\]]+)\]\((?![a-z]+://|#)(?P<path>[^)#]+)(?:#[^)]*)?\)", shown, text)


class Deflate:
    """A `zlib.compressobj` of raw deflate that takes all bytes at the end, and ten times as long for 3 % less."""

    def __init__(self, *_parameters: int) -> None:
        self._data = bytearray()

    def compress(self, data: bytes) -> bytes:
        self._data += data
        return b""

    def flush(self) -> bytes:
        from zopfli.zlib import compress  # noqa: PLC0415 - optional, see below

        return compress(bytes(self._data))[2:-4]  # without the header and the checksum of zlib


class CompressedWheel(bdist_wheel):
    """A wheel compressed by zopfli, if it is there: a build in isolation has it, and builds of tests are fast."""

    def run(self) -> None:
        try:
            import zopfli  # noqa: F401, PLC0415 - optional
        except ImportError:
            super().run()
        else:
            with mock.patch.object(zlib, "compressobj", Deflate):
                super().run()


setup(
    long_description=without_relative_links(README.read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    cmdclass={"bdist_wheel": CompressedWheel},
)
