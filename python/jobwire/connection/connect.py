"""Connections from a URL: redis-py opens and greets them. [SEC-3] [SEC-7]"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.exceptions
import redis.sentinel
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from jobwire.connection.cluster import Nodes, tag_of
from jobwire.errors import ConfigError, NoReply, RedisUnreachable
from jobwire.protocol.wire import ErrorReply

__all__ = [
    "TIMEOUT_S",
    "async_opener",
    "check_greeting",
    "check_url",
    "detach",
    "detach_async",
    "greeting",
    "no_reply",
    "opener",
    "safe_url",
    "unreachable",
]

TIMEOUT_S = 5.0  # longer than any blocking command of a client or worker [ENV-3]
SENTINEL_TIMEOUT_S = 1.0  # after which the next sentinel, or node of a cluster, is asked
SENTINEL_PORT, NODE_PORT = 26379, 6379

_TCP = ("redis", "rediss", "valkey", "valkeys")
_SENTINEL = tuple(f"{scheme}+sentinel" for scheme in _TCP)
_CLUSTER = tuple(f"{scheme}+cluster" for scheme in _TCP)
_SEVERAL = (*_SENTINEL, *_CLUSTER)  # with several hosts
_SCHEMES = (*_TCP, "unix", *_SEVERAL)
# Options that may follow the "?". Others are a mistake, or would change the shape of replies.
_OPTIONS = frozenset(
    [
        *("db", "username", "password", "client_name", "protocol"),
        *("socket_timeout", "socket_connect_timeout", "socket_keepalive"),
        *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password"),
        *("ssl_cert_reqs", "ssl_check_hostname"),
    ]
)
_SENTINEL_OPTIONS = frozenset(["sentinel_username", "sentinel_password"])
_ENCODE = (
    "in user and password, write %23 for #, %3F for ?, %2F for /, %40 for @, %5B for [, %25 for %"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# In a URL that cannot be split: the begin of options, or a colon without a port after it.
_OPTION = re.compile(r"([?#]|:(?!\d+(?:[/,]|$)|//)).*", re.DOTALL)
# With these, a dead peer is noticed within a minute even on an idle connection.
_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}


def check_url(url: str) -> str:
    """Return the URL if it can name a Redis server. [ENV-7]

    User and password in it are percent-encoded; redis-py decodes them and keeps a "+" [ENV-13].
    Blanks around it are left out.

    Raises:
        ConfigError: Unknown scheme or unusable parts.
    """
    url = url.strip()
    shown = f"Redis URL {safe_url(url)!r}"
    try:
        parts, hosts = _split(url)
    except ValueError as error:
        raise ConfigError(f"{shown} {error}") from None
    if parts.scheme == "unix":
        if not parts.path:
            raise ConfigError(f"{shown} names no socket; write unix:///path/to/redis.sock")
    else:
        path = parts.path.strip("/")
        if parts.scheme in _CLUSTER:
            if not (tag_of(url) and all(host for host, _ in hosts)):
                raise ConfigError(
                    f"{shown} must name nodes of a cluster and the hash tag of all keys, like "
                    "redis+cluster://host1:7000,host2:7001/s0; for shards that share the jobs: "
                    "App(shards='redis+cluster://host1:7000,host2:7001?shards=16')"
                )
            path = ""
        if parts.scheme in _SENTINEL:
            service, _, path = path.partition("/")
            if not (service and all(host for host, _ in hosts)):
                raise ConfigError(
                    f"{shown} must name sentinels and the primary that they watch, like "
                    "redis+sentinel://host1:26379,host2:26379/mymaster/0"
                )
        if path and not (path.isascii() and path.isdigit()):
            raise ConfigError(
                f"{shown}: the path {parts.path!r} is not a database number; write /0"
            )
        if any(port == 0 for _, port in hosts):
            raise ConfigError(f"{shown}: port 0 cannot be connected to")
    _check_options(shown, parts.scheme, parts.query)
    return url


def _check_options(shown: str, scheme: str, query: str) -> None:
    known = _OPTIONS | _SENTINEL_OPTIONS if scheme in _SENTINEL else _OPTIONS
    if scheme in _CLUSTER:
        known -= {"db"}  # its nodes need not have the others
    for name, value in parse_qsl(query):
        if name not in known:
            raise ConfigError(
                f"{shown}: unknown option {name!r}; known: {', '.join(sorted(known))}"
            )
        if name == "protocol" and value not in ("2", "3"):
            raise ConfigError(f"{shown}: protocol {value!r} is not 2 or 3")
        if name == "ssl_cert_reqs" and value not in ("none", "optional", "required"):
            raise ConfigError(f"{shown}: ssl_cert_reqs {value!r}; write none, optional or required")
        if name.startswith("ssl_") and not _redis(scheme).startswith("rediss"):
            secure = scheme.replace("+", "s+") if "+" in scheme else f"{scheme}s"
            fix = "remove it" if scheme == "unix" else f"write {secure}:// instead of {scheme}://"
            raise ConfigError(f"{shown}: {name} is for TLS; {fix}")
    try:
        _parsed(f"redis://localhost?{query}")
    except ValueError as error:
        raise ConfigError(f"{shown}: {error}") from None


def _split(url: str) -> tuple[SplitResult, list[tuple[str, int | None]]]:
    """Return the parts of a URL, and the hosts; the parts have a secret in its known places only.

    Raises:
        ValueError: It has no such parts. The text is the rule, and holds nothing of the URL.
    """
    if url[:1] in ("'", '"'):
        raise ValueError(
            "is in quotes; remove them (docker run --env-file keeps those of its file)"
        )
    if not url.startswith(tuple(f"{scheme}://" for scheme in _SCHEMES)):
        raise ValueError(
            "must begin with redis://, rediss://, valkey://, valkeys:// or unix://, like "
            "redis://localhost:6379/0; "
            "with Sentinel: redis+sentinel://host1,host2/mymaster/0; "
            "of a cluster: redis+cluster://host1:7000,host2:7001/s0"
        )
    if _CONTROL.search(url):  # `urlsplit` would remove some of them
        raise ValueError("has a line break or a control character; percent-encode it, like %0A")
    try:
        parts = urlsplit(url)
        hosts = _hosts(parts.netloc) if parts.scheme in _SEVERAL else [("", parts.port)]
    except ValueError:
        raise ValueError(
            f"has no readable host and port; a port is a number up to 65535; {_ENCODE}"
        ) from None
    is_unix = parts.scheme == "unix"
    if is_unix and parts.netloc and not parts.netloc.endswith("@"):
        raise ValueError(f"must have /// before the path, unix:///path/to/redis.sock; {_ENCODE}")
    if "#" in url or ("@" in parts.path and not is_unix):
        raise ValueError(f"has a # or an @ after the host; {_ENCODE}")
    for option in filter(None, parts.query.split("&")):
        name, has_value, value = option.partition("=")
        if not has_value or ("@" in value and name not in _OPTIONS | _SENTINEL_OPTIONS):
            raise ValueError(f"must have options like db=1 after the ?, joined by &; {_ENCODE}")
    return parts, hosts


def _redis(url: str) -> str:
    """Return a URL, or its scheme, with Redis' word in place of Valkey's."""
    return "redis" + url.removeprefix("valkey") if url.startswith("valkey") else url


def _parsed(url: str) -> dict[str, Any]:
    options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call,unused-ignore]
    return options


def _hosts(netloc: str) -> list[tuple[str, int | None]]:
    """Return host and port of each sentinel, or node of a cluster."""
    hosts = []
    for host in netloc.rpartition("@")[2].split(","):
        parts = urlsplit(f"//{host}")
        hosts.append((parts.hostname or "", parts.port))
    return hosts


def safe_url(url: str) -> str:
    """Return the URL without its passwords, for messages. [SEC-2]

    If its parts cannot be told apart, the result has nothing from before the last `@`, and no
    options.
    """
    url = url.strip()
    try:
        parts, _ = _split(url)
    except ValueError:
        scheme = next((f"{name}://" for name in _SCHEMES if url.startswith(f"{name}://")), "")
        _, secret, host = url.removeprefix(scheme).rpartition("@")
        return scheme + ("***@" if secret else "") + _OPTION.sub(r"\1***", host)
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:***@{host}"
    query = "&".join(_safe_option(option) for option in parts.query.split("&"))
    if (netloc, query) == (parts.netloc, parts.query):
        return url
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _safe_option(option: str) -> str:
    name, _, value = option.partition("=")
    is_plain = name in _OPTIONS and not name.endswith("password")
    return option if is_plain or not value else f"{name}=***"


def greeting(url: str, role: str) -> list[tuple[str, ...]]:
    """Return the commands that name this client; the URL may give another name."""
    named = dict(parse_qsl(urlsplit(url).query)).get("client_name")
    return [("CLIENT", "SETNAME", named or f"jobwire-{role}:{os.getpid()}")]


def check_greeting(replies: Sequence[Any]) -> None:
    """Raise the error of a refused login. A server that rejects CLIENT SETNAME is usable.

    [ENV-9] [ENV-14]

    Raises:
        redis.exceptions.AuthenticationError: The server wants a password.
        ConnectionRefusedError: The server has too many clients, or denies this one.
    """
    for reply in replies:
        if isinstance(reply, ErrorReply):
            if reply.says("NOAUTH"):
                raise redis.exceptions.AuthenticationError(reply.message)
            if reply.says("max number of clients") or reply.says("DENIED"):
                raise ConnectionRefusedError(reply.message)


def opener(url: str, *, timeout: float, protocol: int | None = None) -> Callable[[], Any]:
    """Return a function that opens a new connection, blocking. It raises `RedisError`.

    Args:
        url: URL of the server. Each connection looks up the host names, and asks the sentinels or
            the nodes of the cluster.
        timeout: Seconds to wait for a connection, and for a reply.
        protocol: Version of RESP, which overrides that of the URL.
    """
    no_retry = Retry(NoBackoff(), 0)
    make, watchers, nodes = _maker(
        url,
        redis.ConnectionPool,
        (redis.sentinel.Sentinel, redis.sentinel.SentinelConnectionPool),
        {**_defaults(timeout), "retry": no_retry},
        {} if protocol is None else {"protocol": protocol},
    )

    def answer(connection: Any, probe: Sequence[str]) -> redis.RedisError | None:
        try:
            connection.connect()
            connection.send_command(*probe)
            connection.read_response()
        except redis.RedisError as error:
            return error
        return None

    def find(nodes: Nodes) -> Any:
        search = nodes.search()
        while True:
            connection = make(*search.next())
            found = False
            try:
                found = search.ends(answer(connection, nodes.probe))
            finally:
                if not found:
                    connection.disconnect()
            if found:
                return connection

    def connect() -> Any:
        if nodes is not None:
            return find(nodes)
        connection = make()
        try:
            connection.connect()
        finally:
            for watcher in watchers:
                watcher.connection_pool.disconnect(inuse_connections=False)
        return connection

    return connect


def async_opener(url: str, *, timeout: float) -> Callable[[], Any]:
    """Return a coroutine function that opens a new connection; see `opener`."""
    no_retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
    make, watchers, nodes = _maker(
        url,
        redis.asyncio.ConnectionPool,
        (redis.asyncio.sentinel.Sentinel, redis.asyncio.sentinel.SentinelConnectionPool),
        {**_defaults(timeout), "retry": no_retry},
        {},
    )

    async def answer(connection: Any, probe: Sequence[str]) -> redis.RedisError | None:
        try:
            await connection.connect()
            await connection.send_command(*probe)
            await connection.read_response()
        except redis.RedisError as error:
            return error
        return None

    async def find(nodes: Nodes) -> Any:
        search = nodes.search()
        while True:
            connection = make(*search.next())
            found = False
            try:
                found = search.ends(await answer(connection, nodes.probe))
            finally:
                if not found:
                    await connection.disconnect(nowait=True)
            if found:
                return connection

    async def connect() -> Any:
        if nodes is not None:
            return await find(nodes)
        connection = make()
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            for watcher in watchers:
                await watcher.connection_pool.disconnect(inuse_connections=False)
        return connection

    return connect


def _defaults(timeout: float) -> dict[str, Any]:
    """Return the options for every connection.

    There are no automatic retries, because only an operation knows if it may run twice. [PUSH-8]
    The protocol is RESP2, because every server supports it. [ENV-4]
    """
    return {
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "socket_keepalive": True,
        "socket_keepalive_options": _KEEPALIVE,
    }


def _maker(
    url: str,
    plain: Any,
    sentinel: tuple[Any, Any],
    options: dict[str, Any],
    forced: dict[str, Any],
) -> tuple[Callable[..., Any], list[Any], Nodes | None]:
    """Return a function that makes an unconnected connection, and those to ask for its address.

    These are the clients of the sentinels, or the nodes of a cluster: then the function takes host
    and port of one.

    The pools of redis-py read a URL and ask sentinels. They pool no connections here, and no
    connection to a sentinel stays open.
    """
    watchers: list[Any] = []
    url = _redis(url)
    parts = urlsplit(url)
    scheme = parts.scheme.partition("+")[0]
    user, at, _ = parts.netloc.rpartition("@")
    nodes: Nodes | None = None
    if scheme == "rediss":
        options["ssl_check_hostname"] = "ssl_cert_reqs=none" not in parts.query
    if scheme == "unix":
        options = {name: value for name, value in options.items() if "keepalive" not in name}
    if scheme == parts.scheme:
        pool = plain.from_url(url, **options)
    elif parts.scheme in _CLUSTER:
        short = min(SENTINEL_TIMEOUT_S, options["socket_timeout"])
        options["socket_connect_timeout"] = short
        pool = plain.from_url(f"{scheme}://{user}{at}localhost?{parts.query}", **options)
        seeds = [(host, port or NODE_PORT) for host, port in _hosts(parts.netloc)]
        nodes = Nodes(tag_of(url), seeds)
    else:
        service, _, database = parts.path.strip("/").partition("/")
        given = _parsed(f"{scheme}://{user}{at}/{database or 0}?{parts.query}")
        given.pop("connection_class", None)
        greeting = {
            name: given.pop(f"sentinel_{name}")
            for name in ("username", "password")
            if f"sentinel_{name}" in given
        }
        options = {**options, **given}
        tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
        if scheme == "rediss":
            tls["ssl"] = True
        short = min(SENTINEL_TIMEOUT_S, options["socket_timeout"])
        asking = {
            **{"socket_timeout": short, "socket_connect_timeout": short},
            **{"retry": options["retry"], "protocol": options["protocol"]},
            **greeting,
            **tls,
        }
        hosts = [(host, port or SENTINEL_PORT) for host, port in _hosts(parts.netloc)]
        manager = sentinel[0](hosts, sentinel_kwargs=asking)
        watchers = manager.sentinels
        pool = sentinel[1](service, manager, **{**options, **tls})
    settings = {**pool.connection_kwargs, **forced}
    settings.pop("client_name", None)  # `greeting` sets the name, and tolerates a refusal

    def make(*address: Any) -> Any:
        named = dict(zip(("host", "port"), address, strict=False))
        return pool.connection_class(**{**settings, **named})

    return make, watchers, nodes


def detach(opened: Any) -> tuple[socket.socket, bool, Callable[[], None]]:
    """Return the socket of a blocking redis-py connection, whether it speaks RESP3, and its close.

    This function and `detach_async` are the only ones that touch private attributes of redis-py.
    """
    return opened._sock, int(opened.protocol) == 3, opened.disconnect


def detach_async(opened: Any) -> tuple[Any, bool, Callable[[], None]]:
    """Return the transport of an asyncio connection, whether it speaks RESP3, and its close."""
    transport = opened._writer.transport

    def abort() -> None:
        try:
            transport.abort()
        except RuntimeError:  # its loop is closed, and closes no socket any more
            transport.get_extra_info("socket")._sock.close()
        opened._reader = opened._writer = None  # or redis-py closes them a second time

    return transport, int(opened.protocol) == 3, abort  # redis-py 5 keeps the text of the URL


def unreachable(url: str, error: Exception, advice: Callable[[], str] = str) -> RedisUnreachable:
    """Return the error for a connection that could not be made.

    Its text has all of `error`, so raise it `from None`: a user then reads one error, not four.

    Args:
        url: The URL that was used.
        error: The reason.
        advice: Returns the fix if the server cannot be reached, or "".
    """
    reason = (str(error) or type(error).__name__).rstrip(".")
    is_login = isinstance(error, redis.exceptions.AuthenticationError)
    is_refused = is_login or isinstance(error, redis.exceptions.ResponseError)
    fix = "" if is_refused else advice()
    text = f"cannot use Redis at {safe_url(url)}: {reason}"
    unreachable = RedisUnreachable(f"{text}; {fix}" if fix else text)
    unreachable.login_refused, unreachable.refused = is_login, is_refused
    return unreachable


def shorten(error: Exception) -> None:
    """Remove the frames of an error if all are of jobwire: its text says what they hide."""
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_globals.get("__name__", "").startswith("jobwire."):
            return
        trace = trace.tb_next
    error.__traceback__ = None


def no_reply(url: str, error: Exception) -> NoReply:
    """Return the error for a connection that failed between command and reply."""
    reason = str(error) or type(error).__name__
    return NoReply(f"no reply from Redis at {safe_url(url)}: {reason}")
