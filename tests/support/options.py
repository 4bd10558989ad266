"""Options of a table, tried one by one."""

from collections.abc import Callable, Iterable

from segmentlog.connector.options.option import OptionTable
from segmentlog.store import SegmentLogError


def without_effect(parse: Callable[..., object], table: OptionTable, texts: Iterable[str]) -> set[str]:
    """Return the options of a table that no text changes in what ``parse`` makes of it alone."""
    texts = list(texts)

    def changes(name: str, text: str) -> bool:
        try:
            return parse(**{name: text}) != parse()
        except SegmentLogError:
            return False

    return {option.name for option in table if not any(changes(option.name, text) for text in texts)}
