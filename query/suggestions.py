"""Suggestions for errors: the known name that was most likely meant, and lists of names.

::

    suggest("ordrs", ["orders", "payments"]) ──► orders

Loaded by every start of the command: neither numpy nor Arrow is imported.
"""

from collections.abc import Iterable, Sequence


def suggest(word: str, known: Iterable[str]) -> str | None:
    """Find the known word that was most likely meant, whatever its case; None when nothing is near."""
    by_folded = {name.lower(): name for name in known}
    from difflib import get_close_matches  # noqa: PLC0415 - only errors suggest something

    near = get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask for the word that was most likely meant, with a blank after the question; empty when no word is near."""
    near = suggest(word, known)
    return f"Did you mean `{near}`? " if near is not None else ""


def several_or_near(text: str, known: Sequence[str], kind: str) -> str:
    """Return the remedy for known names in one text, separated by commas; else as of `did_you_mean`."""
    if "," in text and {each.strip() for each in text.split(",")} <= {*known}:
        return f"Name the {kind} one by one, not in one text. "
    return did_you_mean(text, known)


def listing(names: Sequence[str], *, most: int = 12) -> str:
    """Write names as a comma-separated list, at most ``most`` of them; the rest as a count."""
    if not names:
        return "none"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more
