"""Options of a look-up: the keys or ids that a batch read is limited to.

::

    keys        ─┐                        ┌─► Lookup(field KEYS, …)
    uniqueKeys  ─┼─ at most one of them ──┼─► Lookup(field UNIQUE, …)
    messageIds  ─┘                        └─► Lookup(field None, …)
"""

from dataclasses import dataclass
from typing import Final

from segmentlog.store.find import KeyField

from . import values
from .option import Given, Mode, Option, Table

LOOKUP: Final = Table("source")

_TEXTS: Final = "texts, comma-separated or a JSON array"


def _texts(name: str, raw: str) -> tuple[str, ...]:
    """Read keys as they are stored; blanks around the commas do not count, and a key may be named twice."""
    if raw.lstrip().startswith("["):
        found = values.json_array(name, raw)
    else:
        found = [part.strip(" ") for part in raw.split(",")]
    if not found or not all(found):
        raise values.bad_value(name, raw, "keys separated by commas, or a JSON array of them")
    return tuple(dict.fromkeys(found))


KEYS: Final = LOOKUP.add(
    Option(
        name="keys",
        value=_TEXTS,
        parse=_texts,
        default=None,
        mode=Mode.BATCH,
        meaning="Read only messages with one of these keys in `KEYS`, found through the index: see [find.md](find.md). "
        "With `startingTimestamp` and `endingTimestamp`; not with offsets, tags, `sqlFilter` or `assign`.",
    )
)
UNIQUE_KEYS: Final = LOOKUP.add(
    Option(
        name="uniqueKeys",
        value=_TEXTS,
        parse=_texts,
        default=None,
        mode=Mode.BATCH,
        meaning="As `keys`, for the unique key that the producer's client sets (`UNIQ_KEY`).",
    )
)
MESSAGE_IDS: Final = LOOKUP.add(
    Option(
        name="messageIds",
        value=_TEXTS,
        parse=_texts,
        default=None,
        mode=Mode.BATCH,
        meaning="As `keys`, for offset message ids (column `msgId`).",
    )
)

KINDS: Final = (KEYS, UNIQUE_KEYS, MESSAGE_IDS)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Keys or ids that are looked up.

    Attributes
    ----------
    field
        The property that holds the keys; None for offset message ids.
    texts
        Distinct, in the order of the option.
    """

    field: KeyField | None
    texts: tuple[str, ...]


def lookup(given: Given) -> Lookup | None:
    """Return the look-up that an option states; None where all messages are read."""
    for option, field in ((KEYS, KeyField.KEYS), (UNIQUE_KEYS, KeyField.UNIQUE), (MESSAGE_IDS, None)):
        texts = given[option]
        if texts is not None:
            return Lookup(field, texts)
    return None
