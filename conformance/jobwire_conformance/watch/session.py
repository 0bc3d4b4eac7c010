"""A run of `jobwire conform watch`: server, relay, application and judge."""

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
from queue import Empty, SimpleQueue
from types import FrameType
from urllib.parse import urlsplit, urlunsplit

import click
from rich.console import Console

from jobwire_conformance.errors import AdapterFault, EnvironmentFault, SuiteFault, Usage
from jobwire_conformance.judge import Judge
from jobwire_conformance.sandbox.local_server import LocalServer, server_program
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.watch.relay import messages
from jobwire_conformance.watch.report import as_json, headline, line, print_report

__all__ = ["WatchOptions", "run"]

_FORWARDED = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "TSTP", "TTIN", "CONT")
_ENDS = ("INT", "TERM", "HUP")
_END_GRACE_S = 5.0  # before the remaining processes of an application are killed
_TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of the command line.

    Attributes:
        command: The application; empty to wait for connections.
        redis: URL of the server; None to start one.
        port: Port to listen on; 0 for any free port.
        json: Path of the JSON results; `-` for standard output; None for no results.
        variables: Names of further variables that get the URL.
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


def run(options: WatchOptions) -> int:
    """Watch until the application ends; return the exit status.

    Raises:
        AdapterFault: The application cannot be started, or never connected.
        EnvironmentFault: No Redis can be reached, or the port is taken.
    """
    console = Console(stderr=True, highlight=False)
    judge = Judge(options.claims, options.namespace)
    with ExitStack() as stack:
        reaper = stack.enter_context(Reaper())
        upstream = _upstream(options.redis, reaper, stack)
        relay = _Relay(reaper, upstream, options.port, judge)
        stack.callback(relay.close)
        url = _moved(options.redis or "redis://127.0.0.1/0", relay.port)
        report = _Live(judge, console)
        if options.command:
            status = _application(options, url, reaper, report, relay)
        else:
            status = _visitors(url, report, relay)
        relay.close()
        judge.end(time.time(), cleanly=status == 0)
        report.clear()
    if relay.failure is not None:
        raise SuiteFault(f"defect of the judge: {relay.failure!r}") from relay.failure
    print_report(judge, console)
    if options.json is not None:
        _write(options, judge, status)
    if not judge.commands:
        raise AdapterFault(_never_came(options))
    return 1 if judge.ledger.count("violation") else 0


class _Relay:
    """The relay's process, and the thread that reads and judges its messages."""

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
        self._messages = messages(self._process.stdout)
        first = next(self._messages, None)
        if first is None or first.failure:
            self._process.wait()
            raise EnvironmentFault(first.failure if first else "the relay process did not start")
        self.port = first.port
        self._thread = threading.Thread(target=self._read, name="judge", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End the relay, and judge its messages so far. Further calls have no effect."""
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
            except Exception as error:  # noqa: BLE001  # the application must not wait for the judge
                self.failure = error


class _Live:
    """Prints findings at once and, on a terminal, a line with the counts so far."""

    def __init__(self, judge: Judge, console: Console) -> None:
        self._judge = judge
        self._console = console
        self._shown = False
        self._told: set[tuple[str, str]] = set()

    def update(self) -> None:
        """Print the new findings and the counts."""
        news = self._judge.ledger.news
        while news:
            finding = news.popleft()
            if self._judge.ledger.grade(finding) in ("violation", "warning"):
                self.clear()
                click.echo(f"jobwire: {line(self._judge, finding)}", err=True)
        if self._console.is_terminal:
            # The cursor returns to the start, so that output of the application replaces the line.
            text = headline(self._judge)[: max(20, self._console.width - 12)]
            click.echo(f"\r\x1b[Kjobwire: {text}\r", err=True, nl=False)
            self._shown = True

    def clear(self) -> None:
        """Remove the line with the counts."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._shown = False


def _application(
    options: WatchOptions, url: str, reaper: Reaper, report: _Live, relay: _Relay
) -> int:
    names = {"REDIS_URL", "JOBWIRE_REDIS_URL", *options.variables}
    if provider := os.environ.get("REDIS_PROVIDER"):
        names.add(provider)
    to_errors = options.json == "-"  # standard output is then for the results
    with _forwarding() as forwarding:
        try:
            process = subprocess.Popen(
                [*options.command],
                env={**os.environ, **dict.fromkeys(names, url)},
                stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
                stdout=sys.stderr.fileno() if to_errors else None,
                process_group=0,
            )
        except OSError as error:
            reason = error.strerror or error
            raise AdapterFault(f"{options.command[0]} cannot be started: {reason}") from None
        reaper.watch_group(process.pid)
        try:
            forwarding.to(process)
            while True:
                try:
                    status = process.wait(_TICK_S)
                    break
                except subprocess.TimeoutExpired:
                    report.update()
                if relay.ended:
                    raise SuiteFault("the relay process ended before the application")
        finally:
            _end_group(process)
            reaper.release_group(process.pid)
    report.clear()
    click.echo(f"jobwire: {options.command[0]} ended with status {status}", err=True)
    return status


def _visitors(url: str, report: _Live, relay: _Relay) -> int:
    # Not an event: its lock would be held already if the handler ran inside its `wait`.
    signals: SimpleQueue[int] = SimpleQueue()
    with _handlers(_ENDS, signals.put):
        click.echo(f"jobwire: judging all connections to {url} (Ctrl-C ends)", err=True)
        while True:
            with suppress(Empty):
                signals.get(timeout=_TICK_S)
                break
            report.update()
            if relay.ended:
                raise SuiteFault("the relay process ended before Ctrl-C")
    return 1  # the exit status of the visitors is unknown


class _handlers:
    """Signal handlers that are set inside a `with` block."""

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


class _forwarding:
    """Forwards signals to a process. The third Ctrl-C kills it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._interrupts = 0
        self._handlers = _handlers(_FORWARDED, self._pass)

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
            # A terminal sends Ctrl-C to its foreground group; the application has another group.
            last = self._interrupts >= 3
            os.killpg(process.pid, signal.SIGKILL if last else signal.SIGINT)

    def __enter__(self) -> _forwarding:
        self._handlers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.__exit__()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the application, if it still runs, and all processes that it leaves behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + _END_GRACE_S
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
        raise Usage(f"--redis is not a URL: {error}") from None
    if parts.scheme not in ("redis", "valkey"):
        raise Usage(
            f"--redis has the scheme {parts.scheme!r}; expected redis://, because the judge must "
            "read the commands"
        )
    try:
        socket.create_connection(address, 5).close()
    except OSError as error:
        raise EnvironmentFault(
            f"no Redis at {address[0]}:{address[1]}: {error.strerror or error}"
        ) from None
    return address


def _moved(url: str, port: int) -> str:
    """Return the URL with the address of the relay; user, password and database stay."""
    parts = urlsplit(url)
    secret, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(
        parts._replace(netloc=f"{secret}{at}127.0.0.1:{port}", path=parts.path or "/0")
    )


def _write(options: WatchOptions, judge: Judge, status: int) -> None:
    results = as_json(judge, command=[*options.command], status=status if options.command else None)
    text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    text = text.encode("utf-8", "backslashreplace").decode()
    if options.json == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(str(options.json)).write_text(text, "utf-8")
    except OSError as error:
        raise Usage(f"cannot write {options.json}: {error.strerror}") from None


def _never_came(options: WatchOptions) -> str:
    if not options.command:
        return "no client connected, so nothing was judged"
    names = ", ".join(["REDIS_URL", "JOBWIRE_REDIS_URL", *options.variables])
    return (
        f"{options.command[0]} never connected, so nothing was judged; it must read the URL of its "
        f"Redis from {names}; name another variable with --env, or configure it for --listen"
    )
