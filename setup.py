"""The one thing that pyproject.toml cannot say: the description for package indexes, made of README.md.

An index shows the description, README.md, without the repository around it, so a relative link leads nowhere there.
Each becomes its text and the path of the page, which is in the source distribution. The list of pages is left out.
"""

import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).parent / "README.md"


def without_relative_links(text: str) -> str:
    """Replace links into the repository by their text and the path."""

    def shown(link: re.Match[str]) -> str:
        label, path = link["label"], link["path"]
        return f"`{path}`" if label == path else f"{label} (`{path}`)"

    text = re.sub(r"^## Documents\n.*?(?=^Apache License)", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\[(?P<label>[^\]]+)\]\((?![a-z]+://|#)(?P<path>[^)#]+)(?:#[^)]*)?\)", shown, text)


setup(
    long_description=without_relative_links(README.read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
