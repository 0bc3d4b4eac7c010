"""Wrong passwords: counted by address, logged, and slowed down."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from jobwire.text import counted, visible

__all__ = ["FREE", "MAX_DELAY_S", "MAX_WAITING", "Attempts", "address_of"]

FREE = 10  # wrong passwords of an address without a pause
STEP_S = 0.2  # for each wrong password, before the answer to a further attempt, right or wrong
MAX_DELAY_S = 5.0
# Attempts of an address at a time: with the pause, at most 40 a second. More connections of one
# address would keep its other visitors out, so the number is large.
MAX_WAITING = 200
MAX_WAITING_IN_ALL = 2000
FORGOTTEN_S = 600.0  # after the last wrong password
MAX_ADDRESSES = 10_000  # in memory
MAX_NAME_CHARS = 50  # characters in the log

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Address:
    last: float
    wrong: int = 0
    waiting: int = 0


class Attempts:
    """Counts wrong passwords, in bounded memory, for use in the thread of an event loop.

    The count is of an address and not of a name, so guesses from one address slow down no person at
    another one.
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._waiting = 0

    def pause(self, address: str, now: float) -> float:
        """Return the seconds that the next attempt of an address has to wait, or 0."""
        known = self._addresses.get(address)
        if known is not None and now - known.last > FORGOTTEN_S and not known.waiting:
            del self._addresses[address]
            known = None
        if known is None or known.wrong < FREE:
            return 0.0
        return min(MAX_DELAY_S, STEP_S * known.wrong)

    def wait(self, address: str) -> bool:
        """Begin to wait; False if too many attempts wait already."""
        known = self._addresses[address]
        if known.waiting >= MAX_WAITING or self._waiting >= MAX_WAITING_IN_ALL:
            return False
        known.waiting += 1
        self._waiting += 1
        return True

    def waited(self, address: str) -> None:
        """End to wait."""
        self._waiting -= 1
        if (known := self._addresses.get(address)) is not None:
            known.waiting -= 1

    def wrong(self, address: str, name: str, now: float) -> None:
        """Count a wrong password; log the first, the tenth, the hundredth and so on."""
        known = self._addresses.setdefault(address, _Address(now))
        known.wrong += 1
        known.last = now
        self._addresses.move_to_end(address)
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        if str(known.wrong).strip("0") == "1":
            log.warning(
                "web page: %s from %s, the last one for the name %r%s",
                counted(known.wrong, "wrong password"),
                visible(address) or "an unknown address",
                visible(name)[:MAX_NAME_CHARS],
                "; answers to this address now wait" if known.wrong >= FREE else "",
            )


def address_of(host: str) -> str:
    """Return the address that counts: of IPv6 its network, because one visitor has all of it."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(getattr(address, "ipv4_mapped", None) or address)
