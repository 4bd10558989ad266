"""Source of the site: the pages of the repository, put together for MkDocs or Zensical.

::

    python scripts/site.py             writes build/pages
    python scripts/site.py --check     only looks for dead links between pages

    README.md                       ──► index.md
    CONTRIBUTING, CHANGELOG, …      ──► contributing.md, changelog.md, …
    docs/                           ──► the same paths
    package/*.pyi, names of doors   ──► api/*.md      directives of mkdocstrings
    titles of docs/adr/             ──► adr/index.md
    first paragraph of each page    ──► llms.txt      an index for language models

Links are rewritten to these places. A link to a file that is not on the site becomes its text and the path.
Standard library only.
"""

import argparse
import ast
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SITE: Final = ROOT / "build" / "pages"
DOORS: Final = ("segmentlog", "segmentlog.admin", "segmentlog.replication", "segmentlog.spark")

_AT_ROOT: Final = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security_reports.md",  # security.md is the threat model
}
_CODE: Final = re.compile(r"^```.*?^```$|(?<=\n\n)(?:    [^\n]*\n)+|`[^`\n]+`|<!--.*?-->", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<label>[^\]]+)\]\((?![a-z]+:)(?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *(?:<!--.*)?$", re.MULTILINE)


def pages(root: Path) -> list[Path]:
    """Return all pages of the site, the front page first."""
    top = [root / "README.md", *(root / name for name in _AT_ROOT)]
    return [*(page for page in top if page.exists()), *sorted((root / "docs").rglob("*.md"))]


def links(text: str) -> Iterator[re.Match[str]]:
    """Find the relative links of a page, outside of code."""
    blank = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for link in _LINK.finditer(text):
        if blank[link.end() - 1] == ")":  # the label of a link may be code, its end is not
            yield link


def anchors(text: str) -> set[str]:
    """Return the anchors of headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    result = set()
    fenced = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
    for title in _HEADING.findall(fenced.sub("", text)):
        shown = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        result.add(f"{slug}_{count}" if count else slug)
    return result


def dead_links(root: Path) -> list[str]:
    """Return links whose file or heading does not exist, each as ``page:line: link``."""
    dead = []
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        for link in links(text):
            target = page.parent / link["path"] if link["path"] else page
            anchor = (link["anchor"] or "").removeprefix("#")
            known = target.exists() and (
                not anchor or target.suffix != ".md" or anchor in anchors(target.read_text(encoding="utf-8"))
            )
            if not known:
                line = text.count("\n", 0, link.start()) + 1
                dead.append(f"{page.relative_to(root)}:{line}: dead link {link['path']}{link['anchor'] or ''}")
    return dead


def write_site(root: Path, to: Path) -> None:
    """Write the source of the site into a directory, in place of what is there."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(root / "docs", to)
    places = {each: each.relative_to(root / "docs").as_posix() for each in (root / "docs").rglob("*") if each.is_file()}
    places[root / "docs" / "adr"] = "adr/index.md"
    places |= {root / name: place for name, place in _AT_ROOT.items()} | {root / "README.md": "index.md"}
    for page in pages(root):
        (to / places[page]).write_text(_moved(page, root, places), encoding="utf-8")
    (to / "adr" / "index.md").write_text(adr_page(root), encoding="utf-8")
    (to / "api").mkdir()
    for door in DOORS:
        (to / "api" / f"{door}.md").write_text(api_page(root, door), encoding="utf-8")
    (to / "llms.txt").write_text(llms_text(root, places), encoding="utf-8")


def _moved(page: Path, root: Path, places: Mapping[Path, str]) -> str:
    """Return the text of a page with its links as they are on the site."""
    text = page.read_text(encoding="utf-8")
    here = os.path.dirname(places[page])
    parts, done = [], 0
    for link in links(text):
        if not link["path"]:
            continue
        target = Path(os.path.normpath(page.parent / link["path"]))
        if target in places:
            path = os.path.relpath(places[target], here or ".")
            shown = f"{link['image']}[{link['label']}]({path}{link['anchor'] or ''})"
        else:
            shown = f"{link['label']} (`{target.relative_to(root).as_posix()}`)"
        parts += [text[done : link.start()], shown]
        done = link.end()
    moved = "".join([*parts, text[done:]])
    # GitHub needs pipes escaped within code in a table; Python-Markdown would show the backslashes.
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace("\\|", "|"), moved)


def adr_page(root: Path) -> str:
    """Write the list of decisions from the titles of their pages."""
    decisions = sorted((root / "docs" / "adr").glob("*.md"))
    titles = [path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for path in decisions]
    listed = [f"* [{title}]({path.name})" for title, path in zip(titles, decisions, strict=True)]
    return "\n".join(["# Decisions", "", *listed, ""])


def api_page(root: Path, door: str) -> str:
    """Write the page of a door: a directive of mkdocstrings for each name of its stub."""
    stub = root / "package" / f"{'__init__' if door == 'segmentlog' else door.rpartition('.')[2]}.pyi"
    names: dict[str, str] = {}
    for each in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(each, ast.ImportFrom) and each.module is not None:
            names |= {alias.asname or alias.name: f"segmentlog.{each.module}.{alias.name}" for alias in each.names}
    errors = sorted(name for name in names if name.endswith("Error"))
    lines = [f"# `{door}`", ""]
    for name in sorted(names.keys() - set(errors), key=lambda name: (name[0].isupper(), name)):  # functions first
        lines += [f"::: {names[name]}", ""]
    if errors:
        lines += ["## Errors", "", ", ".join(f"`{name}`" for name in errors) + ": see [errors](../errors.md).", ""]
    return "\n".join(lines)


def llms_text(root: Path, places: Mapping[Path, str]) -> str:
    """Write the index for language models: title, address and first paragraph of each page (llmstxt.org)."""
    lines = []
    for page in pages(root):
        text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        title, _, rest = text.strip().partition("\n")
        paragraphs = (" ".join(part.split()) for part in rest.split("\n\n") if part.strip())
        first = next((part for part in paragraphs if re.match(r"[A-Z`]", part)), "")
        summary = _LINK.sub(r"\g<label>", first)
        if page.name == "README.md" and page.parent == root:
            lines += [f"# {title.lstrip('# ')}", "", f"> {summary}", "", "## Pages", ""]
        elif page.parent.name != "adr":
            lines.append(f"- [{title.lstrip('# ')}]({places[page]}): {summary}")
    return "\n".join([*lines, ""])


def main() -> int:
    """Check the links, and write the site unless ``--check`` is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only look for dead links")
    options = parser.parse_args()
    dead = dead_links(ROOT)
    print("\n".join(dead), file=sys.stderr, end="\n" if dead else "")  # noqa: T201 - a command
    if not options.check and not dead:
        write_site(ROOT, SITE)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
