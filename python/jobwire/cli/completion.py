"""`jobwire completion`: completes commands and options in bash, zsh and fish."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from jobwire.cli.groups import Group

__all__ = ["completion"]

VARIABLE = "_JOBWIRE_COMPLETE"  # by which click knows that a shell asks
SHELLS = ("bash", "zsh", "fish")

_shell_argument = click.argument("shell", type=click.Choice(SHELLS), required=False)


@click.group(cls=Group)
def completion() -> None:
    """Complete the words of `jobwire` with the Tab key."""


@completion.command()
@_shell_argument
def install(shell: str | None) -> int:
    """Write the file that your shell loads, and say what else it needs.

    Without a name, the shell is that of the variable SHELL.
    """
    shell = shell or _own_shell()
    path, advice = _place(shell)
    text = _script(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    click.echo(f"wrote {path}; {advice}")
    return 0


@completion.command()
@_shell_argument
def show(shell: str | None) -> int:
    """Print the script, to load it in another way.

    Without a name, the shell is that of the variable SHELL.
    """
    click.echo(_script(shell or _own_shell()))
    return 0


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise click.UsageError(f"the shell {name!r} is not one of {', '.join(SHELLS)}; name one")
    return name


def _place(shell: str) -> tuple[Path, str]:
    """Return the file of a shell, and the sentence for the person."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    match shell:
        case "bash":
            path = data / "bash-completion/completions/jobwire"
            return path, "new shells load it if the package bash-completion is installed"
        case "zsh":
            path = data / "zsh/site-functions/_jobwire"
            return path, f"put `fpath=({path.parent} $fpath)` before compinit in ~/.zshrc"
        case _:
            return config / "fish/completions/jobwire.fish", "new shells load it"


def _script(shell: str) -> str:
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click cannot complete in {shell}")
    root = click.get_current_context().find_root().command
    return kind(root, {}, "jobwire", VARIABLE).source()
