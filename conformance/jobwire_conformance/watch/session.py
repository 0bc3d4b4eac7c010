"""A run of `jobwire conform watch`: server, relay, the application, and the judge beside them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit, urlunsplit

import click
from rich.console import Console

from jobwire_conformance.errors import AdapterFault, EnvironmentFault, SuiteFault, Usage
from jobwire_conformance.judge import Judge
from jobwire_conformance.sandbox.local_server import LocalServer, server_program
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.watch.relay import told
from jobwire_conformance.watch.report import as_json, headline, line, print_report

__all__ = ["Wish", "run"]

_PASSED_ON = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "TSTP", "TTIN", "CONT")
_ENDS = ("INT", "TERM", "HUP")
_PATIENCE = 5.0  # seconds until what is left of an application is killed
_TICK = 0.2


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line.

    Attributes:
        command: The application; empty to wait for whoever connects.
        redis: URL of the server; None for one of our own.
        port: Where to listen; 0 for any free port.
        json: Where the results go: a path, `-`, or None.
        variables: Names of more variables that get the URL.
        claims: See `Judge`.
        namespace: See `Judge`.
    """

    command: Sequence[str]
    redis: str | None = None
    port: int = 0
    json: str | None = None
    variables: Sequence[str] = ()
    claims: Sequence[str] = ()
    namespace: str = ""


def run(wish: Wish) -> int:
    """Watch until the application ends; return the exit status.

    Raises:
        AdapterFault: The application cannot be started, or never came by.
        EnvironmentFault: There is no Redis, or the port is taken.
    """
    console = Console(stderr=True, highlight=False)
    judge = Judge(wish.claims, wish.namespace)
    with ExitStack() as stack:
        reaper = stack.enter_context(Reaper())
        upstream = _upstream(wish.redis, reaper, stack)
        relay = _Relay(reaper, upstream, wish.port, judge)
        stack.callback(relay.close)
        url = _moved(wish.redis or "redis://127.0.0.1/0", relay.port)
        report = _Live(judge, console)
        if wish.command:
            status = _application(wish, url, reaper, report, relay)
        else:
            status = _visitors(url, report, relay)
        relay.close()
        judge.end(time.time(), cleanly=status == 0)
        report.clear()
    if relay.failure is not None:
        raise SuiteFault(f"the judge broke: {relay.failure!r}") from relay.failure
    print_report(judge, console)
    if wish.json is not None:
        _write(wish, judge, status)
    if not judge.commands:
        raise AdapterFault(_never_came(wish))
    return 1 if judge.ledger.count("violation") else 0


class _Relay:
    """The relay's process, and the thread that reads and judges what it tells."""

    def __init__(self, reaper: Reaper, upstream: tuple[str, int], port: int, judge: Judge) -> None:
        self.failure: Exception | None = None
        self._reaper = reaper
        self._judge = judge
        package = str(Path(__file__).resolve().parents[2])
        code = (
            f"import sys; sys.path.insert(0, {package!r}); "
            "from jobwire_conformance.watch.relay import main; main()"
        )
        host, server_port = upstream
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, host, str(server_port), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        reaper.watch_group(self._process.pid)
        assert self._process.stdout is not None
        self._messages = told(self._process.stdout)
        first = next(self._messages, None)
        if first is None or first.failure:
            self._process.wait()
            raise EnvironmentFault(first.failure if first else "the relay does not start")
        self.port = first.port
        self._thread = threading.Thread(target=self._read, name="judge", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End the relay, and judge what it has told so far. Harmless when repeated."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._thread.join()
        self._process.wait()
        self._reaper.release_group(self._process.pid)

    def _read(self) -> None:
        for message in self._messages:
            if message.record is None or self.failure is not None:
                continue
            try:
                self._judge.feed(message.record)
            except Exception as error:  # noqa: BLE001  # the application must not wait for us
                self.failure = error


class _Live:
    """Tells of findings as they come, and on a terminal of the state of things."""

    def __init__(self, judge: Judge, console: Console) -> None:
        self._judge = judge
        self._console = console
        self._shown = False
        self._told: set[tuple[str, str]] = set()

    def update(self) -> None:
        """Show what is new."""
        news = self._judge.ledger.news
        while news:
            finding = news.popleft()
            if self._judge.ledger.grade(finding) in ("violation", "warning"):
                self.clear()
                click.echo(f"jobwire: {line(self._judge, finding)}", err=True)
        if self._console.is_terminal:
            # The cursor goes back, so that what the application prints replaces this.
            text = headline(self._judge)[: max(20, self._console.width - 12)]
            click.echo(f"\r\x1b[Kjobwire: {text}\r", err=True, nl=False)
            self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._shown = False


def _application(wish: Wish, url: str, reaper: Reaper, report: _Live, relay: _Relay) -> int:
    names = {"REDIS_URL", "JOBWIRE_REDIS_URL", *wish.variables}
    if provider := os.environ.get("REDIS_PROVIDER"):
        names.add(provider)
    to_errors = wish.json == "-"  # standard output is for the results then
    with _passing_on() as passing:
        try:
            process = subprocess.Popen(
                [*wish.command],
                env={**os.environ, **dict.fromkeys(names, url)},
                stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
                stdout=sys.stderr.fileno() if to_errors else None,
                process_group=0,
            )
        except OSError as error:
            reason = error.strerror or error
            raise AdapterFault(f"{wish.command[0]} cannot be started: {reason}") from None
        reaper.watch_group(process.pid)
        try:
            passing.to(process)
            while True:
                try:
                    status = process.wait(_TICK)
                    break
                except subprocess.TimeoutExpired:
                    report.update()
                if relay.ended:
                    raise SuiteFault("the relay ended")
        finally:
            _end_group(process)
            reaper.release_group(process.pid)
    report.clear()
    click.echo(f"jobwire: {wish.command[0]} ended with status {status}", err=True)
    return status


def _visitors(url: str, report: _Live, relay: _Relay) -> int:
    ended = threading.Event()
    with _handlers(_ENDS, lambda number: ended.set()):
        click.echo(f"jobwire: judging whoever connects to {url} (Ctrl-C ends)", err=True)
        while not ended.wait(_TICK):
            report.update()
            if relay.ended:
                raise SuiteFault("the relay ended")
    return 1  # how the visitors ended nobody knows


class _handlers:
    """Signal handlers for the time of a block."""

    def __init__(self, names: Iterable[str], handler: Callable[[int], object]) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            handler(number)

        self._numbers = [getattr(signal, f"SIG{name}") for name in names]
        self._handle = handle

    def __enter__(self) -> None:
        self._before = [signal.signal(number, self._handle) for number in self._numbers]

    def __exit__(self, *_: object) -> None:
        for number, before in zip(self._numbers, self._before, strict=True):
            signal.signal(number, before)


class _passing_on:
    """Passes signals on to a process; the third Ctrl-C kills it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._interrupts = 0
        self._handlers = _handlers(_PASSED_ON, self._pass)

    def to(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        for number in self._early:
            self._pass(number)

    def _pass(self, number: int) -> None:
        process = self._process
        if process is None:
            self._early.append(number)
            return
        with suppress(ProcessLookupError):
            if number != signal.SIGINT:
                process.send_signal(number)
                return
            self._interrupts += 1
            # A terminal's Ctrl-C goes to the whole group, and ours is another one.
            last = self._interrupts >= 3
            os.killpg(process.pid, signal.SIGKILL if last else signal.SIGINT)

    def __enter__(self) -> _passing_on:
        self._handlers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.__exit__()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what an application leaves behind, and itself if it still runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except (ProcessLookupError, PermissionError):
                process.wait()
                return
            time.sleep(0.01)


def _upstream(url: str | None, reaper: Reaper, stack: ExitStack) -> tuple[str, int]:
    if url is None:
        server = LocalServer(reaper, server_program(None))
        stack.callback(server.close)
        return "127.0.0.1", server.port
    try:
        parts = urlsplit(url)
        address = parts.hostname or "127.0.0.1", parts.port or 6379
    except ValueError as error:
        raise Usage(f"--redis is no URL: {error}") from None
    if parts.scheme != "redis":
        raise Usage(
            f"--redis begins with {parts.scheme or 'nothing'}://, and only redis:// can be "
            "watched: the traffic has to be readable"
        )
    try:
        socket.create_connection(address, 5).close()
    except OSError as error:
        raise EnvironmentFault(
            f"no Redis at {address[0]}:{address[1]}: {error.strerror or error}"
        ) from None
    return address


def _moved(url: str, port: int) -> str:
    """Return the same URL, user and password and database included, at the relay."""
    parts = urlsplit(url)
    secret, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(
        parts._replace(netloc=f"{secret}{at}127.0.0.1:{port}", path=parts.path or "/0")
    )


def _write(wish: Wish, judge: Judge, status: int) -> None:
    results = as_json(judge, command=[*wish.command], status=status if wish.command else None)
    text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    text = text.encode("utf-8", "backslashreplace").decode()
    if wish.json == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(str(wish.json)).write_text(text, "utf-8")
    except OSError as error:
        raise Usage(f"cannot write {wish.json}: {error.strerror}") from None


def _never_came(wish: Wish) -> str:
    if not wish.command:
        return "nobody has connected, so nothing was judged"
    names = ", ".join(["REDIS_URL", "JOBWIRE_REDIS_URL", *wish.variables])
    return (
        f"{wish.command[0]} never connected, so nothing was judged: it has to take its Redis from "
        f"{names}; name the variable that it reads with --env, or set it up by hand, with --listen"
    )
