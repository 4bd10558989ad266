import importlib.util
import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("site_source", ROOT / "scripts" / "site.py")
assert spec is not None
assert spec.loader is not None
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)


def clone(root: Path) -> Path:
    (root / "docs" / "inner").mkdir(parents=True)
    (root / "docs" / "adr").mkdir()
    (root / "docs" / "adr" / "0001-c.md").write_text("# 1. C\n\nWhy [all](../adr).\n")
    (root / "package").mkdir()
    (root / "notes.ipynb").write_text("{}")
    (root / "README.md").write_text(
        "# Front\n\nA [page](docs/a.md#two-words), [code](notes.ipynb) and `[no](link.md)`.\n\n    [no](either.md)\n"
    )
    (root / "SECURITY.md").write_text("# Reports\n\nSee [a](docs/a.md).\n")
    (root / "docs" / "a.md").write_text("# A\n\nThe [`front`](../README.md).\n\n## Two `words`\n\n| `x \\| y` |\n")
    (root / "docs" / "inner" / "b.md").write_text("# B\n\nTo [a](../a.md), [reports](../../SECURITY.md).\n")
    for stub in ("__init__", "admin", "replication", "spark"):
        names = "from .x import Error as BadError\nfrom .x import Store as Store\nfrom .y import open as open\n"
        (root / "package" / f"{stub}.pyi").write_text(names)
    return root


def test_dead_links_have_their_line(tmp_path: Path) -> None:
    root = clone(tmp_path)
    assert site.dead_links(root) == []
    (root / "docs" / "a.md").write_text("# A\n\n[gone](c.md), [b](inner/b.md#c)\n[self](#d) [page](https://a.b/c)\n")
    assert site.dead_links(root) == [
        "README.md:3: dead link docs/a.md#two-words",
        "docs/a.md:3: dead link c.md",
        "docs/a.md:3: dead link inner/b.md#c",
        "docs/a.md:4: dead link #d",
    ]


def test_links_follow_their_pages(tmp_path: Path) -> None:
    site.write_site(clone(tmp_path / "clone"), tmp_path / "pages")
    text = {path.name: path.read_text() for path in (tmp_path / "pages").rglob("*") if path.is_file()}
    front = (tmp_path / "pages" / "index.md").read_text()
    assert "A [page](a.md#two-words), code (`notes.ipynb`) and `[no](link.md)`." in front
    assert "    [no](either.md)" in front
    assert "The [`front`](index.md)." in text["a.md"]
    assert "| `x | y` |" in text["a.md"]
    assert "To [a](../a.md), [reports](../security_reports.md)." in text["b.md"]
    assert text["0001-c.md"] == "# 1. C\n\nWhy [all](index.md).\n"
    assert (tmp_path / "pages" / "adr" / "index.md").read_text() == "# Decisions\n\n* [1. C](0001-c.md)\n"
    assert text["segmentlog.admin.md"] == (
        "# `segmentlog.admin`\n\n::: segmentlog.y.open\n\n::: segmentlog.x.Store\n\n"
        "## Errors\n\n`BadError`: see [errors](../errors.md).\n"
    )
    assert text["llms.txt"].startswith("# Front\n\n> A page, code and")
    assert "- [B](inner/b.md): To a, reports." in text["llms.txt"]


def test_no_link_of_a_page_is_dead() -> None:
    assert site.dead_links(ROOT) == []


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    site.write_site(ROOT, tmp_path / "pages")
    listed = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r": ([\w/.-]+\.md)$", listed, re.MULTILINE)
    pages = {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.md")}
    assert len(named) == len(set(named))
    assert set(named) == {page for page in pages if not fnmatch(page, "adr/0*")}
