"""Groups of commands: suggestions for wrong names, and commands that are imported when called."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click
import click.shell_completion

__all__ = ["Group", "LazyGroup", "Place", "Plugin", "did_you_mean"]


def did_you_mean(word: str, known: list[str]) -> str:
    """Return `; did you mean 'worker'?`, or "" if no known word is similar."""
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class Group(click.Group):
    """A group that suggests a command for a wrong name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


class Place(NamedTuple):
    """The place of a command, `module:name`, and its line in the help of the group."""

    target: str
    help: str

    def load(self, name: str) -> click.Command:
        """Import the command."""
        module, _, attribute = self.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class Plugin(NamedTuple):
    """A command of another distribution: how to install it, and its line in the help.

    It is an entry point of the group `jobwire.commands`.
    """

    install: str
    help: str

    def load(self, name: str) -> click.Command:
        """Import the command, or say how to install it."""
        from importlib.metadata import entry_points  # slow, and only these commands need it

        for point in entry_points(group="jobwire.commands", name=name):
            command: click.Command = point.load()
            return command
        raise click.ClickException(self.install)


class LazyGroup(Group):
    """A group that imports a command when it is called.

    So a worker does not hold the code of the other commands, and the help is quick.

    Args:
        sections: Title of a section of the help to its commands: name to place.
        **options: Options of `click.Group`.
    """

    def __init__(
        self, *, sections: Mapping[str, Mapping[str, Place | Plugin]], **options: Any
    ) -> None:
        super().__init__(**options)
        self.sections = sections
        self.places = {name: place for part in sections.values() for name, place in part.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return [*self.places]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return a command; None if there is none with this name."""
        return self.places[name].load(name) if name in self.places else None

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Return the commands that begin with some letters, without importing them."""
        commands = [
            click.shell_completion.CompletionItem(name, help=place.help)
            for name, place in self.places.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        width = max(map(len, self.places))
        for title, places in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{key:{width}}", places[key].help) for key in places])
