"""`jobwire web`: serves the page."""

from __future__ import annotations

import gc
import getpass
import os
import signal
import socket
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

import click

from jobwire.cli.companions import page_lacks
from jobwire.cli.options import app_option, find_places, namespace_option, redis_option
from jobwire.connection.connect import safe_url
from jobwire.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

__all__ = ["web"]

PORT = 9928
STOP_S = 2  # for requests that are under way


@click.command()
@app_option
@redis_option
@namespace_option
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 for any.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Others than those of this machine need a password.",
)
@click.option("--prefix", default="", help="Path of the page behind a proxy, such as /jobs.")
@click.option("--read-only", is_flag=True, help="Each visitor is a viewer.")
@click.option(
    "--hide-arguments", is_flag=True, help="Viewers see no arguments and no error messages."
)
@click.option(
    "--also",
    multiple=True,
    metavar="NAME=URL",
    help="One more Redis, under /NAME; may be repeated. The first one is under /main; / shows all.",
)
def web(
    url: str | None,
    namespace: str | None,
    port: int,
    host: str,
    prefix: str,
    read_only: bool,
    hide_arguments: bool,
    also: tuple[str, ...],
) -> int:
    """Serve the page of a Redis, until TERM or INT.

    It shows and changes queues, jobs and processes, also if only Sidekiq uses this Redis.

    Without a password, only this machine can open it, and each visitor is an admin. Passwords
    come from the environment: JOBWIRE_WEB_TOKEN is the password for any name, in the role
    JOBWIRE_WEB_ROLE (admin by default). JOBWIRE_WEB_USERS has name:role:password for each person,
    separated by blanks. The roles are viewer, operator and admin. JOBWIRE_WEB_SECRET signs forms.
    Set it if several processes serve the same page.
    """
    if lacks := page_lacks():
        raise ConfigError(f"jobwire web: {lacks}")
    import uvicorn

    from jobwire.console.web.access import Passwords, Visitor, read_accounts
    from jobwire.console.web.serving import behind, is_loopback, on_loopback
    from jobwire.web import WebApp
    from jobwire.web import hide_arguments as hiding

    accounts = read_accounts(os.environ)
    if not accounts and not is_loopback(host):
        raise ConfigError(
            f"--host: {host} can be reached from other machines, and there is no password; set"
            " JOBWIRE_WEB_TOKEN or JOBWIRE_WEB_USERS, or leave --host out"
        )
    places = find_places(url, namespace)
    keyspace = next(iter(places.values())).namespace
    named = {name or "main": place.url for name, place in places.items()}
    _add(named, also)
    here = Visitor(_person(), "admin")
    app = WebApp(
        named if len(named) > 1 or "" not in places else named["main"],
        authorize=Passwords(accounts) if accounts else lambda request: here,
        redact=hiding if hide_arguments else None,
        read_only=read_only,
        namespace=keyspace,
        secret=os.environ.get("JOBWIRE_WEB_SECRET"),
    )
    config = uvicorn.Config(
        behind(_prefix(prefix), app if accounts else on_loopback(app)),
        lifespan="off",
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
    )
    listener = _listen(host, port)
    bound = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    served = ", ".join(f"{safe_url(place.url)} ({place.source})" for place in places.values())
    click.echo(f"jobwire web: http://{shown}:{bound}{_prefix(prefix)}/ for {served}", err=True)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.end_updates()
            await super().shutdown(sockets)

    server = Server(config)
    gc.freeze()  # the imported modules stay, so the collector need not look at them each time
    try:
        _end_at_signals(server)
        server.run(sockets=[listener])
    finally:
        app.close()
    return 0


def _end_at_signals(server: uvicorn.Server) -> None:
    """Let TERM, INT and HUP end the server, so that changes stop after their batch.

    The server handles TERM and INT itself while it runs, and raises them again at its end, where
    Python's own handlers would end the process at once. With `nohup`, HUP stays ignored.
    """

    def end(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def _add(named: dict[str, str], also: Sequence[str]) -> None:
    for item in also:
        name, equals, url = item.partition("=")
        if not (name and equals and url):
            raise ConfigError(f"--also: {item!r} is not NAME=URL; write eu=redis://eu:6379/0")
        if name in named:
            raise ConfigError(f"--also: there is already a Redis of the name {name!r}")
        named[name] = url


def _prefix(prefix: str) -> str:
    stripped = prefix.strip("/")
    if not stripped:
        return ""
    if not all(part.replace("-", "").replace("_", "").isalnum() for part in stripped.split("/")):
        raise ConfigError(f"--prefix: {prefix!r} is not a path like /jobs")
    return f"/{stripped}"


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return "somebody"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"--port: cannot listen on {host} port {port}: {error.strerror or error}"
        ) from None
    return listener
