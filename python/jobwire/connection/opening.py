"""The opening of a connection: its server, and the commands before it is ready.

An opening has no socket. It is a generator that yields a `Server` to connect to, or the words of a
command for the server that it is connected to, and gets the reply, or the error of the connection.
The connection that is left at its end is the one. [SEC-3] [SEC-7]
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from jobwire.connection.cluster import Address, Nodes, Refused, tag_of
from jobwire.connection.connect import CLUSTER, SENTINEL, hosts_of, options_of
from jobwire.protocol.wire import ErrorReply

if TYPE_CHECKING:
    from ssl import SSLContext  # loaded for TLS only

__all__ = ["Opening", "Server"]

SHORT_TIMEOUT_S = 1.0  # after which the next sentinel, or node of a cluster, is asked
PORT, SENTINEL_PORT = 6379, 26379

# With these, a dead peer is noticed within a minute even on an idle connection.
_KEEPALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
]
_LOGIN = ("NOAUTH", "WRONGPASS", "invalid password", "without any password")
_FULL = ("max number of clients", "DENIED")


class Server(NamedTuple):
    """A server to connect to."""

    address: Address | str
    """Host and port, or the path of a socket."""
    timeout: float
    """Seconds to wait for a reply."""
    connect_timeout: float
    """Seconds to wait for the connection."""
    resp3: bool
    """Whether its replies are of RESP3."""
    options: Mapping[str, Any]
    """Those of the URL."""
    tls: bool

    def tune(self, connected: Any) -> None:
        """Set the options of a connected socket."""
        if not isinstance(self.address, str):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.options.get("socket_keepalive", True):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _KEEPALIVE:
                    connected.setsockopt(socket.IPPROTO_TCP, name, value)

    def context(self) -> SSLContext | None:
        """Return how TLS checks the server; None without TLS."""
        if not self.tls:
            return None
        import ssl

        option = self.options.get
        context = ssl.create_default_context()
        needed = option("ssl_cert_reqs", "required")
        context.check_hostname = needed != "none" and option("ssl_check_hostname", True)
        context.verify_mode = ssl.VerifyMode[f"CERT_{needed.upper()}"]
        if certificate := option("ssl_certfile"):
            context.load_cert_chain(certificate, option("ssl_keyfile"), option("ssl_password"))
        if option("ssl_ca_certs") or option("ssl_ca_path"):
            context.load_verify_locations(option("ssl_ca_certs"), option("ssl_ca_path"))
        return context


Steps: TypeAlias = Generator[Server | tuple[str, ...], Any, None]


class Opening:
    """Opens connections to the server of a URL, which `check_url` accepts. Threads may share it.

    Host names are looked up, and the sentinels or the nodes of a cluster asked, for each
    connection. An exception that no step of it expects ends the opening: `OSError`, or `Refused`.

    Args:
        url: URL of the server.
        timeout: Seconds to wait for a connection, and for a reply; the URL may have others.
        role: Named in the server's list of clients, `jobwire-<role>:<pid>`; the URL may name
            another name.
        protocol: Version of RESP, which overrides that of the URL. The default is 2, because every
            server supports it. [ENV-4]
    """

    def __init__(self, url: str, *, timeout: float, role: str, protocol: int | None = None) -> None:
        parts = urlsplit(url)
        options = options_of(parts.query)
        scheme = parts.scheme.partition("+")[0]
        self._role = role
        self._name: str | None = options.get("client_name")
        self._user = unquote(parts.username or "") or options.get("username", "")
        self._password = unquote(parts.password or "") or options.get("password", "")
        self._nodes: Nodes | None = None
        self._sentinels: list[Address] = []
        self._service, path, port = "", parts.path.strip("/"), PORT
        address: Address | str = ("", 0)
        timeout = connect_timeout = options.get("socket_timeout", timeout)
        if parts.scheme in SENTINEL:
            self._service, _, path = path.partition("/")
            self._sentinels = _addresses(parts.netloc, SENTINEL_PORT)
        elif parts.scheme in CLUSTER:
            self._nodes = Nodes(tag_of(url), _addresses(parts.netloc, PORT))
            path, connect_timeout = "", min(SHORT_TIMEOUT_S, timeout)
        elif scheme == "unix":
            address, path = unquote(parts.path), ""
        else:
            address = (unquote(parts.hostname or "localhost"), parts.port or port)
        self._database: int = options.get("db", int(path or 0))
        self._server = Server(
            address,
            timeout,
            options.get("socket_connect_timeout", connect_timeout),
            (protocol or options.get("protocol", 2)) == 3,
            options,
            scheme in ("rediss", "valkeys"),
        )

    def steps(self) -> Steps:
        """Open a connection."""
        server = self._server
        if self._nodes is not None:
            search = self._nodes.search()
            while True:
                node = server._replace(address=search.next())
                try:
                    yield node
                    yield from self._greet()
                    answer = yield self._nodes.probe
                except (OSError, Refused) as error:
                    answer = error
                if search.ends(answer):
                    return
        if self._sentinels:
            server = server._replace(address=(yield from self._primary()))
        yield server
        yield from self._greet()

    def _greet(self) -> Steps:
        """Log in, and name this client. A server that rejects only the name is usable.

        [ENV-9] [ENV-14]
        """
        yield from _log_in(self._user, self._password, resp3=self._server.resp3)
        if self._database:
            _check((yield ("SELECT", str(self._database))))
        name = self._name or f"jobwire-{self._role}:{os.getpid()}"
        reply = yield ("CLIENT", "SETNAME", name)
        if isinstance(reply, ErrorReply) and any(map(reply.says, ("NOAUTH", *_FULL))):
            _check(reply)

    def _primary(self) -> Generator[Server | tuple[str, ...], Any, Address]:
        """Ask one sentinel after the other for the primary that they watch."""
        option = self._server.options.get
        short = min(SHORT_TIMEOUT_S, self._server.timeout)
        asked = self._server._replace(timeout=short, connect_timeout=short, resp3=False)
        reasons = []
        for sentinel in self._sentinels:
            try:
                yield asked._replace(address=sentinel)
                user, password = option("sentinel_username", ""), option("sentinel_password", "")
                yield from _log_in(user, password, resp3=False)
                reply = yield ("SENTINEL", "MASTER", self._service)
            except OSError as error:
                reasons.append(f"{sentinel[0]}:{sentinel[1]}: {error}")
                continue
            if isinstance(reply, ErrorReply) and not reply.says("No such master"):
                _check(reply)
            elif not isinstance(reply, ErrorReply):
                found = dict(zip(reply[::2], reply[1::2], strict=False))
                flags = found[b"flags"].split(b",")
                if b"master" in flags and not {b"s_down", b"o_down"}.intersection(flags):
                    # The next connection asks the sentinel first that has answered.
                    rest = [each for each in self._sentinels if each != sentinel]
                    self._sentinels = [sentinel, *rest]
                    return found[b"ip"].decode(), int(found[b"port"])
        why = "".join(f"; {reason}" for reason in reasons)
        raise ConnectionError(f"no sentinel knows a primary {self._service!r} that is up{why}")


def _log_in(user: str, password: str, *, resp3: bool) -> Steps:
    login = bool(user or password)
    if resp3:
        words = ("AUTH", user or "default", password) if login else ()
        _check((yield ("HELLO", "3", *words)))
    elif login:
        _check((yield ("AUTH", *([user] if user else []), password)))


def _check(reply: Any) -> None:
    """Raise the error of a server that refuses to take commands.

    Raises:
        Refused: It does not let this user in.
        ConnectionRefusedError: It has too many clients, or does not serve yet.
    """
    if isinstance(reply, ErrorReply):
        if any(map(reply.says, ("LOADING", *_FULL))):
            raise ConnectionRefusedError(reply.message)
        refused = Refused(reply.message)
        refused.is_login = any(map(reply.says, _LOGIN))
        raise refused


def _addresses(netloc: str, port: int) -> list[Address]:
    return [(host, given or port) for host, given in hosts_of(netloc)]
