"""The commands of `jobwire conform`, one module a command.

A module is imported when its command is called, and imports most of its own modules when it runs.
"""

from __future__ import annotations

import traceback
from importlib import import_module
from typing import Any

import click

from jobwire_conformance.errors import ConformError, SuiteFault

__all__ = ["COMMANDS", "conform"]

COMMANDS = {
    "watch": "jobwire_conformance.cli.watch:watch",
    "init": "jobwire_conformance.cli.init:init",
    "doctor": "jobwire_conformance.cli.doctor:doctor",
    "check": "jobwire_conformance.cli.check:check",
    "baseline": "jobwire_conformance.cli.baseline:baseline",
    "explore": "jobwire_conformance.cli.explore:explore",
    "explain": "jobwire_conformance.cli.explain:explain",
    "replay": "jobwire_conformance.cli.replay:replay",
    "kills": "jobwire_conformance.cli.kills:kills",
    "trace": "jobwire_conformance.cli.trace:trace",
    "report": "jobwire_conformance.cli.report:report",
    "matrix": "jobwire_conformance.cli.matrix:matrix",
    "interop": "jobwire_conformance.cli.interop:interop",
}
"""Name to module and function, in the order of the help."""

_USAGE = 64


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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConformError as error:
            click.echo(f"Error: {error}", err=True)
            return error.status
        except click.ClickException as error:
            error.show()
            return _USAGE
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in ("hypothesis", "jsonschema"):
                raise
            click.echo(
                f"Error: the suite needs the package {package}; "
                "install it with: pip install 'jobwire[conformance]'",
                err=True,
            )
            return _USAGE
        except (click.Abort, click.exceptions.Exit):
            raise
        except Exception:  # noqa: BLE001  Python's status 1 would mean that a claim is not met
            click.echo(traceback.format_exc(), err=True, nl=False)
            click.echo("Error: defect of the suite; please report it", err=True)
            return SuiteFault.status


@click.group(cls=_Conform)
def conform() -> None:
    """Check an implementation of the protocol, in any language.

    Exit status: 0 all claims met; 1 a claim not met; 2 a deviation is stale or unknown; 3 the
    adapter (driver or worker program) failed; 4 fault of the environment, like a missing Redis;
    5 fault of the suite; 64 wrong usage.
    """
