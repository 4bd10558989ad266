"""Places: silent connections make room, and connections with a request keep theirs."""

import pytest

from segmentlog.store import ReplicationError
from segmentlog.store.ha.places import Places


def taken(places: Places, *connections: tuple[str, int]) -> None:
    for address, number in connections:
        places.take(address, number)


def test_the_oldest_silent_connection_of_the_address_makes_room() -> None:
    places = Places(100, 3)
    assert places.victim_of("a") is None
    taken(places, ("a", 1), ("a", 2), ("a", 3), ("b", 4))
    places.speak("a", 1)
    assert places.victim_of("a") == 2
    assert places.victim_of("b") is None
    places.leave("a", 2)
    assert places.victim_of("a") is None
    taken(places, ("a", 2))
    assert places.victim_of("a") == 3


def test_an_address_whose_connections_all_have_requests_is_refused() -> None:
    places = Places(100, 2)
    taken(places, ("a", 1), ("a", 2))
    for number in (1, 2):
        places.speak("a", number)
    with pytest.raises(ReplicationError, match="all 2 places of this address are taken"):
        places.victim_of("a")
    assert places.victim_of("b") is None


def test_if_all_places_are_taken_the_address_with_most_silent_connections_makes_room() -> None:
    places = Places(5, 3)
    taken(places, ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5))
    places.speak("a", 1)
    places.speak("a", 2)
    assert places.victim_of("c") == 4
    for address, number in (("b", 4), ("b", 5), ("a", 3)):
        places.speak(address, number)
    with pytest.raises(ReplicationError, match="all 5 places are taken"):
        places.victim_of("c")
    places.leave("b", 5)
    assert places.victim_of("c") is None
