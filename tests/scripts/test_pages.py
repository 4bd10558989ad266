import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "pages.py"


def test_the_pages_are_current() -> None:
    for path, text in runpy.run_path(str(SCRIPT))["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, "run scripts/pages.py"
