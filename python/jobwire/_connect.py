"""What the sync and the asyncio shell share about connections."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis.exceptions

from jobwire.errors import ConfigError, NoReply, RedisUnreachable
from jobwire.wire import ErrorReply

__all__ = [
    "ERROR_REPLIES",
    "TIMEOUT",
    "check_url",
    "no_reply",
    "pool_options",
    "reply_value",
    "safe_url",
    "unreachable",
]

TIMEOUT = 5.0  # seconds; longer than any blocking command we send [ENV-3]

# redis-py cuts off the code of errors that it has a class for. Put it back.
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (redis.exceptions.NoScriptError, "NOSCRIPT"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.ExecAbortError, "EXECABORT"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.AuthenticationError, "NOAUTH"),
    (redis.exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.AskError, "ASK"),
)

# Errors that the server answered with: the connection is sound and nothing was done.
ERROR_REPLIES = (
    redis.exceptions.ResponseError,
    redis.exceptions.AuthenticationError,
    redis.exceptions.BusyLoadingError,
)


def check_url(url: str) -> str:
    """Return the URL if it can be one of a Redis server. User and password in it are
    percent-encoded, and redis-py decodes them. [ENV-7]

    Raises:
        ConfigError: Unknown scheme or unusable parts.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"Redis URL {safe_url(url)!r}: {error}") from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise ConfigError(
            f"Redis URL {safe_url(url)!r} must begin with redis://, rediss:// or unix://, "
            "like redis://localhost:6379/0"
        )
    if parts.scheme != "unix":
        database = parts.path.strip("/")
        if database and not database.isdigit():
            raise ConfigError(
                f"Redis URL {safe_url(url)!r}: the path {parts.path!r} is no database number; "
                "write /0"
            )
        if port == 0:
            raise ConfigError(f"Redis URL {safe_url(url)!r}: port 0 cannot be connected to")
    elif not parts.path:
        raise ConfigError(
            f"Redis URL {safe_url(url)!r} names no socket; write unix:///path/to/redis.sock"
        )
    return url


def safe_url(url: str) -> str:
    """Return the URL as it may be shown: without the password. [SEC-2]"""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(unreadable)"
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:***@{host}"
    query = re.sub(r"((?:^|&)password=)[^&]*", r"\1***", parts.query)
    if (netloc, query) == (parts.netloc, parts.query):
        return url
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def pool_options(timeout: float, max_connections: int) -> dict[str, Any]:
    """Return the settings of a connection pool.

    No automatic repetition: only an operation knows whether it may be done twice. [PUSH-8]
    RESP2: it is understood everywhere. [ENV-4]
    """
    return {
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "max_connections": max_connections,
        "retry_on_timeout": False,
    }


def reply_value(reply: Any) -> Any:
    """Return a reply with the driver's exceptions turned into `ErrorReply` values."""
    if isinstance(reply, list):
        return [reply_value(each) for each in reply]
    if isinstance(reply, redis.exceptions.RedisError):
        text = str(reply)
        for kind, code in _CODES:
            if isinstance(reply, kind) and not text.startswith(code):
                return ErrorReply(f"{code} {text}")
        return ErrorReply(text)
    return reply


def unreachable(url: str, error: Exception) -> RedisUnreachable:
    """Return the error for a connection that could not be made."""
    reason = str(error) or type(error).__name__
    return RedisUnreachable(f"cannot use Redis at {safe_url(url)}: {reason}")


def no_reply(url: str, error: Exception) -> NoReply:
    """Return the error for a connection that failed between command and reply."""
    reason = str(error) or type(error).__name__
    return NoReply(f"no reply from Redis at {safe_url(url)}: {reason}")
