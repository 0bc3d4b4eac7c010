"""URLs of servers, and the errors of connections to them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from jobwire.connection.cluster import Refused, tag_of
from jobwire.errors import ConfigError, NoReply, RedisUnreachable

__all__ = [
    "CLUSTER",
    "SENTINEL",
    "TIMEOUT_S",
    "check_url",
    "hosts_of",
    "no_reply",
    "options_of",
    "safe_url",
    "shorten",
    "unreachable",
]

TIMEOUT_S = 5.0  # longer than any blocking command of a client or worker [ENV-3]

_TCP = ("redis", "rediss", "valkey", "valkeys")
SENTINEL = tuple(f"{scheme}+sentinel" for scheme in _TCP)
CLUSTER = tuple(f"{scheme}+cluster" for scheme in _TCP)
_SEVERAL = (*SENTINEL, *CLUSTER)  # with several hosts
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
_NUMBERS = ("db", "protocol", "socket_timeout", "socket_connect_timeout")
_SWITCHES = ("socket_keepalive", "ssl_check_hostname")
_OFF = ("0", "F", "FALSE", "N", "NO")


def check_url(url: str) -> str:
    """Return the URL if it can name a Redis server. [ENV-7]

    User and password in it are percent-encoded, and keep a "+" [ENV-13]. Blanks around it are left
    out.

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
        if parts.scheme in CLUSTER:
            if not (tag_of(url) and all(host for host, _ in hosts)):
                raise ConfigError(
                    f"{shown} must name nodes of a cluster and the hash tag of all keys, like "
                    "redis+cluster://host1:7000,host2:7001/s0; for shards that share the jobs: "
                    "App(shards='redis+cluster://host1:7000,host2:7001?shards=16')"
                )
            path = ""
        if parts.scheme in SENTINEL:
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
    known = _OPTIONS | _SENTINEL_OPTIONS if scheme in SENTINEL else _OPTIONS
    if scheme in CLUSTER:
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
        if name.startswith("ssl_") and not scheme.startswith(("rediss", "valkeys")):
            secure = scheme.replace("+", "s+") if "+" in scheme else f"{scheme}s"
            fix = "remove it" if scheme == "unix" else f"write {secure}:// instead of {scheme}://"
            raise ConfigError(f"{shown}: {name} is for TLS; {fix}")
    try:
        options_of(query)
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
        hosts = hosts_of(parts.netloc) if parts.scheme in _SEVERAL else [("", parts.port)]
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


def options_of(query: str) -> dict[str, Any]:
    """Return the options after the "?" of a URL; of several with one name, the first.

    Raises:
        ValueError: One is not a number. The text is the rule.
    """
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query):
        value: Any = text
        if name in _NUMBERS:
            try:
                value = float(text) if "timeout" in name else int(text)
            except ValueError:
                raise ValueError(f"{name} {text!r} is not a number") from None
        elif name in _SWITCHES:
            value = text.upper() not in _OFF
        options.setdefault(name, value)
    return options


def hosts_of(netloc: str) -> list[tuple[str, int | None]]:
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


def unreachable(url: str, error: Exception, advice: Callable[[], str] = str) -> RedisUnreachable:
    """Return the error for a connection that could not be made.

    Its text has all of `error`, so raise it `from None`: a user then reads one error, not four.

    Args:
        url: The URL that was used.
        error: The reason.
        advice: Returns the fix if the server cannot be reached, or "".
    """
    is_refused = isinstance(error, Refused)
    fix = "" if is_refused else advice()
    text = f"cannot use Redis at {safe_url(url)}: {_reason(error).rstrip('.')}"
    unreachable = RedisUnreachable(f"{text}; {fix}" if fix else text)
    unreachable.login_refused = isinstance(error, Refused) and error.is_login
    unreachable.refused = is_refused
    return unreachable


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio has a text of its own
    if isinstance(error, TimeoutError):
        return str(error) or "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


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
