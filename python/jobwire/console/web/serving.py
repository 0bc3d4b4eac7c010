"""Serving the page alone: its prefix behind a proxy, and protection where there is no password."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from jobwire.console.web.guard import with_headers

__all__ = ["behind", "is_loopback", "on_loopback"]


def is_loopback(host: str) -> bool:
    """Return True if a name or an address is of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def behind(prefix: str, app: ASGIApp) -> ASGIApp:
    """Return an application under a prefix, whether the proxy leaves the prefix out or not."""
    if not prefix:
        return app

    async def prefixed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, raw = scope["path"], scope.get("raw_path") or scope["path"].encode()
            if not (path == prefix or path.startswith(f"{prefix}/")):
                path, raw = prefix + path, prefix.encode() + raw
            scope = {**scope, "root_path": prefix, "path": path, "raw_path": raw}
        await app(scope, receive, send)

    return prefixed


def on_loopback(app: ASGIApp) -> ASGIApp:
    """Return an application that answers only requests for this machine by name.

    Without it, a page of the internet whose name points to 127.0.0.1 could read all answers.
    """

    refusal = with_headers(
        PlainTextResponse(
            "without a password, the page answers only to localhost and 127.0.0.1; set"
            " JOBWIRE_WEB_TOKEN to use another name\n",
            403,
        )
    )

    async def local(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not is_loopback(_host_name(hosts[0])):
                await refusal(scope, receive, send)
                return
        await app(scope, receive, send)

    return local


def _host_name(header: bytes) -> str:
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname or ""
    except ValueError:  # such as a bracket that is not closed
        return ""
