import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from segmentlog.command.catalogue import VERBS
from segmentlog.connector.options.read_table import SOURCE
from segmentlog.connector.options.write_table import SINK
from segmentlog.connector.read import KAFKA, NATIVE
from segmentlog.store import NATIVE_COLUMNS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """``scripts/pages.py``, which is run by path and belongs to no package."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "scripts" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_current(pages: ModuleType) -> None:
    for path, text in pages.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run scripts/pages.py"


def test_each_option_is_in_its_table(pages: ModuleType) -> None:
    source, _, sink = pages.options_page().partition("## Options of the sink")
    for table, page in ((SOURCE, source), (SINK, sink)):
        for option in table:
            assert f'| <a id="{option.name}"></a>`{option.name}`' in page


def test_each_column_has_a_line(pages: ModuleType) -> None:
    page = pages.options_page()
    for column in NATIVE_COLUMNS:
        assert f"| `{column.name}` | {NATIVE[column.name].simpleString()} | {column.meaning} |" in page
    assert list(pages.KAFKA_MEANINGS) == list(KAFKA)


def test_each_verb_and_flag_is_in_its_section(pages: ModuleType) -> None:
    page = pages.verbs_page()
    groups = re.findall(r"^\* (\*\w+\*): (.*)$", page, re.MULTILINE)
    for verb in VERBS:
        _, _, section = page.partition(f"\n### {verb.name}\n")
        section = section.partition("\n##")[0]
        assert section, verb.name
        section += "".join(flags for name, flags in groups if name in section)
        for action in verb.parser().actions:
            assert action.dest == "help" or all(f"{name}" in section for name in action.option_strings)
