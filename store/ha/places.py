"""Places of a server for connections: silent ones make room, so that a replica always finds one.

::

    address   connections, oldest first          s silent: no request yet     r requested
    10.1.0.7  [s r s s s]                  full: its oldest silent one goes, and the new one has the place
    10.1.0.9  [r r r r r]                  full, and all have requests: the new one is refused
    all       [s r s s s][r r …][s]        full: the oldest silent one goes of the address that has most of them

A handshake by TLS that does not end is silent, too. RocketMQ's slaves send their request 5 s after they connected.
"""

from ..errors import ReplicationError


class Places:
    """Connections by address. Not thread-safe.

    Parameters
    ----------
    most
        Connections that have a place at the same time.
    of_address
        Those of one address.
    """

    def __init__(self, most: int, of_address: int) -> None:
        self._most = most
        self._of_address = of_address
        self._count = 0
        self._silent: dict[str, dict[int, bool]] = {}  # per address: silent or not, by number and in order of arrival

    def victim_of(self, address: str) -> int | None:
        """Return the connection to end before one of an address can have a place; None if there is room.

        Raises
        ------
        ReplicationError
            If there is no place.
        """
        held = self._silent.get(address, {})
        if len(held) >= self._of_address:
            taken = f"all {self._of_address} places of this address are taken"
        elif self._count >= self._most:
            taken = f"all {self._most} places are taken"
            held = max(self._silent.values(), key=lambda each: sum(each.values()))
        else:
            return None
        for number, is_silent in held.items():
            if is_silent:
                return number
        raise ReplicationError(taken)

    def take(self, address: str, number: int) -> None:
        """Note a connection, silent so far."""
        self._silent.setdefault(address, {})[number] = True
        self._count += 1

    def speak(self, address: str, number: int) -> None:
        """Note that a connection has sent its request: it keeps its place."""
        self._silent[address][number] = False

    def leave(self, address: str, number: int) -> None:
        """Note that a connection ended."""
        held = self._silent[address]
        del held[number]
        self._count -= 1
        if not held:
            del self._silent[address]
