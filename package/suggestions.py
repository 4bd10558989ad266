"""Names in error messages: the known name that was most likely meant, and lists of names.

::

    suggest("ordrs", ["orders", "payments"])  ──► orders
    listing(["orders", "payments"])           ──► `orders`, `payments`
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from segmentlog.store import ConfigError, UnknownQueueError


def suggest(word: str, known: Iterable[str]) -> str | None:
    """Find the known word that was most likely meant, whatever its case; None when nothing is near."""
    by_folded = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[near[0]] if near else None


def listing(names: Sequence[str], *, most: int = 12) -> str:
    """Write names as a comma-separated list, at most ``most`` of them; the rest as a count."""
    if not names:
        return "none"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask for the word that was most likely meant, with a blank after the question; empty when no word is near."""
    near = suggest(word, known)
    return f"Did you mean `{near}`? " if near is not None else ""


def unknown_group(group: str, known: Iterable[str], *, path: str) -> ConfigError:
    """Make the error for a consumer group without a position in any of the stores, with the name that was meant."""
    names = sorted(known)
    problem = f"consumer group `{group}` has no position here"
    return ConfigError(
        problem, path=path, fix=f"{did_you_mean(group, names)}The groups with a position are {listing(names)}"
    )


def unknown_topic(argument: str, topic: str, known: Sequence[str], *, path: str) -> UnknownQueueError:
    """Make the error for a topic that a store does not have, with the one that was meant; ``argument`` named it."""
    fix = f"{did_you_mean(topic, known)}The topics are {listing(known)}"
    return UnknownQueueError(f"{argument}: there is no topic `{topic}`", path=path, fix=fix)
