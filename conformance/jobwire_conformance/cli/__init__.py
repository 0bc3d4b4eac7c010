"""The commands of `jobwire conform`, one module a command.

A module is imported when its command is called, and imports most of its own modules when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

import jobwire_conformance
from jobwire_conformance.errors import ConformError, SuiteFault, Usage

__all__ = ["COMMANDS", "conform", "print_error"]

COMMANDS = {
    "watch": "jobwire_conformance.cli.watch:watch",
    "init": "jobwire_conformance.cli.init:init",
    "doctor": "jobwire_conformance.cli.doctor:doctor",
    "check": "jobwire_conformance.cli.check:check",
    "baseline": "jobwire_conformance.cli.baseline:baseline",
    "explain": "jobwire_conformance.cli.explain:explain",
    "replay": "jobwire_conformance.cli.replay:replay",
    "kills": "jobwire_conformance.cli.kills:kills",
    "variants": "jobwire_conformance.cli.variants:variants",
    "trace": "jobwire_conformance.cli.trace:trace",
    "report": "jobwire_conformance.cli.report:report",
    "export": "jobwire_conformance.cli.export:export",
    "matrix": "jobwire_conformance.cli.matrix:matrix",
    "interop": "jobwire_conformance.cli.interop:interop",
}
"""Name to module and function, in the order of the help."""


_SIGPIPE = 141  # the status of a program that SIGPIPE has killed, in a shell


class _Conform(click.Group):
    """A group with its own exit statuses, which do not depend on its caller."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in COMMANDS:
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.ClickException as error:
            raise click.exceptions.Exit(print_error(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except BrokenPipeError:
            return _unread()

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ConformError, click.ClickException) as error:
            return print_error(error)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package != "jsonschema":
                raise
            advice = "install it with: pip install 'jobwire[conformance]'"
            return print_error(Usage(f"the suite needs the package {package}; {advice}"))
        except (click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception:  # noqa: BLE001  Python's status 1 would mean that a claim is not met
            click.echo(traceback.format_exc(), err=True, nl=False)
            return print_error(SuiteFault("defect of the suite; please report it"))


def print_error(error: ConformError | click.ClickException) -> int:
    """Print an error in the form of all commands of jobwire; return its exit status."""
    text, status = str(error), Usage.status
    if isinstance(error, ConformError):
        status = error.status
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        text = f"{error.format_message()} (see {error.ctx.command_path} --help)"
    else:
        text = error.format_message()
    click.echo(f"jobwire: {text}", err=True)
    return status


def _unread() -> int:
    """End as a program that SIGPIPE kills: `head` has read enough of the output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())  # for Python's own flush at its end
    os.close(nowhere)
    return _SIGPIPE


@click.group(cls=_Conform)
@click.version_option(
    jobwire_conformance.__version__, "-V", "--version", prog_name="jobwire conform"
)
def conform() -> None:
    """Check an implementation of the protocol, in any language.

    Exit status: 0 all claims met; 1 a claim not met; 2 a deviation is stale or unknown; 3 the
    adapter (driver or worker program) failed; 4 fault of the environment, like a missing Redis;
    5 fault of the suite; 64 wrong usage.
    """
