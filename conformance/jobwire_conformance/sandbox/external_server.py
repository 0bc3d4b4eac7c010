"""A server given by `--redis`. The suite uses it only if it is empty, and leaves it empty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from jobwire_conformance.errors import EnvironmentFault, Usage
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.wire.link import Link
from jobwire_conformance.wire.resp import command

__all__ = ["ExternalServer", "borrow", "parse"]

_MARK = "jobwire:suite"  # a key in the second database, so that another run does not use it
_NOT_ENCRYPTED = "the suite must read the commands, so encrypted connections are not possible"


@dataclass(frozen=True, slots=True)
class ExternalServer:
    """One database of the server.

    Attributes:
        host: Host of the server.
        port: Port of the server.
        database: Number of the database.
        greeting: Frame of the first command of a connection: AUTH, or empty without a password.
        mark: True if it holds the key that marks the databases as used.
        tls: Whether connections are encrypted.
    """

    host: str
    port: int
    database: int
    greeting: bytes
    mark: bool = False
    tls: bool = False

    def link(self) -> Link:
        """Return a new connection."""
        link = Link(
            self.port,
            host=self.host,
            greeting=self.greeting,
            name=f"the server of --redis, {self.host}:{self.port},",
            tls=self.tls,
        )
        if self.database:
            link.call("SELECT", self.database)
        return link

    def clear(self, link: Link) -> None:
        """Delete all keys of this database."""
        link.call("FLUSHDB")
        if self.mark:
            link.call("SET", _MARK, "1")

    def close(self) -> None:
        """Leave the database empty, as it was before."""
        link = self.link()
        link.call("FLUSHDB")
        link.close()


def parse(url: str, *, may_encrypt: bool = False) -> ExternalServer:
    """Return the database of a URL.

    Args:
        url: The URL.
        may_encrypt: Whether it may ask for TLS.

    Raises:
        Usage: The URL is wrong or has a form that the suite does not support.
    """
    tls = may_encrypt and url.startswith(("rediss://", "valkeys://"))
    if not tls and not url.startswith(("redis://", "valkey://")):
        other = "or rediss:// for TLS" if may_encrypt else _NOT_ENCRYPTED
        raise Usage(
            f"--redis {_public(url)}: expected redis://[:PASSWORD@]HOST[:PORT][/DATABASE]; {other}"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 6379
        database = int(parts.path.strip("/") or 0)
    except ValueError as error:
        raise Usage(f"--redis {_public(url)}: not a URL of a server: {error}") from None
    if parts.query or database < 0:
        raise Usage(f"--redis {_public(url)}: only the number of a database may follow the address")
    secrets = [unquote(part) for part in (parts.username, parts.password) if part]
    greeting = command("AUTH", *secrets) if parts.password else b""
    return ExternalServer(host, port, database, greeting, tls=tls)


def borrow(reaper: Reaper, first: ExternalServer) -> tuple[ExternalServer, ExternalServer]:
    """Return two databases of the server: the given one, and the next one for reports of jobs.

    The reaper empties them at the end, even if the suite is killed.

    Raises:
        EnvironmentFault: The server cannot be reached, or one of the databases is not empty.
    """
    pair = first, replace(first, database=first.database + 1, mark=True)
    for database in pair:
        link = database.link()
        keys = link.call("DBSIZE")
        link.close()
        if keys:
            raise EnvironmentFault(
                f"database {database.database} of {first.host}:{first.port} is not empty: it has "
                f"{keys} keys, and a run deletes all keys of databases {pair[0].database} and "
                f"{pair[1].database}; choose others with --redis redis://HOST:PORT/DATABASE, or "
                "leave out --redis to have the suite start a server"
            )
    commands = [command("SELECT", str(one.database)) + command("FLUSHDB") for one in pair]
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
