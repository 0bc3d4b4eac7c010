"""A cluster: its URLs, each of which names one slot, and the search for the node of the slot.

All keys at such a URL begin with its hash tag, so that they are in one slot. Any node tells which
one has it, in the error of a command for a key of the slot. [KEY-4] [PUSH-9]
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from jobwire.errors import ConfigError
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import ErrorReply

__all__ = ["Address", "Nodes", "Refused", "expand", "is_away", "is_cluster", "keys_at", "tag_of"]

Address: TypeAlias = tuple[str, int]
MAX_SHARDS = 1_000

_SCHEME = re.compile(r"(redis|valkey)s?\+cluster://")
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_AWAY = frozenset(["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"])


def is_cluster(url: str) -> bool:
    """Return whether a URL has a scheme of clusters."""
    return _SCHEME.match(url) is not None


def tag_of(url: str) -> str:
    """Return the hash tag that a URL names; "" if it names none, or an unusable one."""
    if not is_cluster(url):
        return ""
    tag = urlsplit(url).path.strip("/")
    return tag if _TAG.fullmatch(tag) else ""


def keys_at(url: str, namespace: str) -> Keys:
    """Return the key names of a namespace at a URL. [KEY-4]"""
    tag = tag_of(url.strip())
    return _tagged(tag, namespace) if tag else Keys(namespace)


def expand(url: str) -> dict[str, str]:
    """Return the shards of a cluster, name to URL: `s0`, `s1`... as many as the URL says.

    Three primaries with a third of all slots each have 6, 6 and 4 of s0 to s15.

    Raises:
        ConfigError: It does not say how many, or names a hash tag as well.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    count = options.pop("shards", "")
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= MAX_SHARDS):
        raise ConfigError(
            f"shards: a cluster needs a number of shards from 1 to {MAX_SHARDS:,}; "
            "write redis+cluster://host1:7000,host2:7000?shards=16"
        )
    if parts.path.strip("/"):
        raise ConfigError(
            "shards: the URL of a cluster names one hash tag after its hosts, and a number of "
            "shards; leave one of both out"
        )
    query = urlencode(options)
    names = [f"s{number}" for number in range(int(count))]
    return {name: urlunsplit(parts._replace(path=f"/{name}", query=query)) for name in names}


def is_away(message: str) -> bool:
    """Return whether an error says that a slot is on its way, or at another node."""
    return message.partition(" ")[0] in _AWAY


class Refused(Exception):
    """The server refuses a new connection for good; the text is its error.

    Attributes:
        is_login: True if it wants another user or password.
    """

    is_login = False


class Nodes:
    """The nodes of a cluster, of which one has a slot. Threads and event loops may share it.

    Args:
        tag: The hash tag of the keys.
        seeds: Some nodes of the cluster.

    Attributes:
        probe: The command for a node that tells whether it has the slot. Every role of SEC-3 may
            send it.
        last: The node that had the slot when it was last looked for.
    """

    def __init__(self, tag: str, seeds: Sequence[Address]) -> None:
        self.probe = ("HGET", _tagged(tag).batch("-"), "x")
        self.last: Address | None = None
        self._seeds = seeds

    def search(self) -> Search:
        """Begin to look for the node of the slot."""
        return Search(self, self._seeds if self.last is None else [self.last, *self._seeds])


class Search:
    """A search, without a socket: it says which node to ask, and gets the answer."""

    def __init__(self, nodes: Nodes, begin: Sequence[Address]) -> None:
        self._nodes = nodes
        self._left = deque(begin)
        self._asked: set[Address] = set()
        self._now = begin[0]
        self._trouble: Exception = ConnectionError("the nodes of the cluster name one another")

    def next(self) -> Address:
        """Return the next node to ask.

        Raises:
            OSError: No node of the slot can be reached.
        """
        while self._left:
            self._now = self._left.popleft()
            if self._now not in self._asked:
                self._asked.add(self._now)
                return self._now
        raise self._trouble

    def ends(self, answer: Any) -> bool:
        """Return whether this node is the one.

        Args:
            answer: Its reply to the probe, or the error of the connection.

        Raises:
            Refused: It refuses the login, and so do the others.
        """
        if isinstance(answer, Exception):
            if isinstance(answer, Refused):
                raise answer
            self._trouble = answer
            return False
        code, *words = answer.message.split(" ") if isinstance(answer, ErrorReply) else ("NONE",)
        if code == "MOVED":
            host, _, port = words[-1].rpartition(":")
            host = self._now[0] if host in ("", "?") else host  # its own
            self._left.appendleft((host, int(port)))
            return False
        if code in ("CLUSTERDOWN", "MASTERDOWN", "LOADING"):
            self._trouble = ConnectionError(answer.message)  # it may pass
            return False
        if code not in ("NONE", "ASK", "NOPERM"):
            raise Refused(answer.message)
        # Also while keys move to another node, and if only this command is forbidden.
        self._nodes.last = self._now
        return True


def _tagged(tag: str, namespace: str = "") -> Keys:
    return Keys(f"{{{tag}}}:{namespace}")
