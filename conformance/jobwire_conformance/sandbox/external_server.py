"""A server that is not the suite's own: used only if it is empty, and left as it was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from jobwire_conformance.errors import EnvironmentFault, Usage
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.wire.link import Link
from jobwire_conformance.wire.resp import command

__all__ = ["ExternalServer", "borrow", "parse"]

_MARK = "jobwire:suite"  # in the second database, so that another run finds it not empty


@dataclass(frozen=True, slots=True)
class ExternalServer:
    """One database of the server.

    Attributes:
        host: Where it listens.
        port: Where it listens.
        database: Its number.
        greeting: What a new connection has to say first: the password, if there is one.
        mark: Whether it holds a key that says that it is in use.
    """

    host: str
    port: int
    database: int
    greeting: bytes
    mark: bool = False

    def link(self) -> Link:
        """Return a new connection."""
        found = Link(
            self.port,
            host=self.host,
            greeting=self.greeting,
            name=f"the server of --redis, {self.host}:{self.port},",
        )
        if self.database:
            found.call("SELECT", self.database)
        return found

    def clear(self, link: Link) -> None:
        """Forget everything in this database."""
        link.call("FLUSHDB")
        if self.mark:
            link.call("SET", _MARK, "1")

    def close(self) -> None:
        """Leave it as it was found."""
        link = self.link()
        link.call("FLUSHDB")
        link.close()


def parse(url: str) -> ExternalServer:
    """Return the database that a URL names.

    Raises:
        Usage: It names none that can be used.
    """
    if not url.startswith("redis://"):
        raise Usage(
            f"--redis {_public(url)}: only redis://[:PASSWORD@]HOST[:PORT][/DATABASE] can be used; "
            "the suite has to read what passes"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 6379
        database = int(parts.path.strip("/") or 0)
    except ValueError as error:
        raise Usage(f"--redis {_public(url)}: no URL of a server: {error}") from None
    if parts.query or database < 0:
        raise Usage(f"--redis {_public(url)}: no database but a number can follow the address")
    secrets = [unquote(each) for each in (parts.username, parts.password) if each]
    greeting = command("AUTH", *secrets) if parts.password else b""
    return ExternalServer(host, port, database, greeting)


def borrow(reaper: Reaper, first: ExternalServer) -> tuple[ExternalServer, ExternalServer]:
    """Return two databases of the server: the one that was named, and the next for reports.

    Whatever becomes of the suite, the reaper empties them in the end.

    Raises:
        EnvironmentFault: There is no such server, or one of them is not empty.
    """
    pair = first, replace(first, database=first.database + 1, mark=True)
    for each in pair:
        link = each.link()
        keys = link.call("DBSIZE")
        link.close()
        if keys:
            raise EnvironmentFault(
                f"database {each.database} of {first.host}:{first.port} is not empty: it has "
                f"{keys} keys, and a run deletes everything in databases {pair[0].database} and "
                f"{pair[1].database}; name others with --redis redis://HOST:PORT/DATABASE, or "
                "leave --redis out for a server of the suite's own"
            )
    commands = [command("SELECT", str(each.database)) + command("FLUSHDB") for each in pair]
    reaper.empty((first.host, first.port), first.greeting + b"".join(commands))
    link = pair[1].link()
    pair[1].clear(link)
    link.close()
    return pair


def _public(url: str) -> str:
    """Return a URL without its password."""
    before, at, after = url.rpartition("@")
    if not at:
        return repr(url)
    scheme, _, _ = before.partition("://")
    return repr(f"{scheme}://...@{after}")
