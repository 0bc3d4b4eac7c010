"""A small HTTP server in threads, for probes and scrapes."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NamedTuple
from urllib.parse import unquote

from jobwire.errors import ConfigError

__all__ = ["Listener", "Reply", "Route", "json_reply", "text_reply"]

MAX_REQUESTS = 32  # at a time; more connections are closed
REQUEST_TIMEOUT_S = 5.0  # in which a client must send its request, and read the reply
JOIN_TIMEOUT_S = 1.0

_log = logging.getLogger("jobwire.monitoring")


class Reply(NamedTuple):
    """An answer."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK


Route = Callable[[str, str], Reply | None]
"""Returns the answer to a request; None if there is nothing at this place.

It gets the rest of the path after the name of the route, and the header `Accept`.
"""


def text_reply(text: str, status: int = HTTPStatus.OK) -> Reply:
    """Return a line of text as an answer."""
    return Reply(f"{text}\n".encode(), status=status)


def json_reply(body: bytes, status: int = HTTPStatus.OK) -> Reply:
    """Return JSON as an answer."""
    return Reply(body, "application/json", status)


class Listener:
    """Answers requests on one port, from `start` until `close`.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for any.
        routes: First part of a path, like `/queues`, to the function that answers it.
        asked_by: Name of the setting, for the error.

    Raises:
        ConfigError: It cannot listen there.

    Attributes:
        port: The port.
        url: The address with the port, without a path.
    """

    def __init__(self, host: str, port: int, routes: Mapping[str, Route], *, asked_by: str) -> None:
        try:
            self._server = _Server(host, port, routes)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"{asked_by}: cannot listen on {host} port {port}: {reason}"
            ) from None
        self.port: int = self._server.server_address[1]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        # The name must not begin with "jobwire-": such threads are the jobs that have not ended.
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="worker-http", daemon=True
        )

    def start(self) -> None:
        """Answer from now on, in threads of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening; requests that are being answered go on."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(JOIN_TIMEOUT_S)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.routes = routes
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer also asks DNS for a name, which may take long
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        reply = self._reply()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_HEAD = do_GET

    def version_string(self) -> str:
        return "jobwire"

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)

    def _reply(self) -> Reply:
        routes = self.server.routes
        path = self.path.partition("?")[0]
        for name in sorted(routes, key=len, reverse=True):
            if path == name or path.startswith(f"{name}/"):
                rest = unquote(path[len(name) + 1 :], errors="surrogateescape")
                try:
                    reply = routes[name](rest, self.headers.get("Accept", ""))
                except Exception:  # noqa: BLE001 - ours, and the thread is the request's
                    _log.exception("cannot answer %s", name)
                    return text_reply("internal error; see the log", 500)
                if reply is not None:
                    return reply
        paths = " ".join(sorted(routes))
        return text_reply(f"not found; paths: {paths}", HTTPStatus.NOT_FOUND)
