"""The settings of a command: the file, narrowed to the claims of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobwire_conformance import config
from jobwire_conformance.config import Config
from jobwire_conformance.data import CLAIMS
from jobwire_conformance.errors import Usage

__all__ = ["DEVIATIONS", "settings"]

DEVIATIONS = "jobwire.deviations.toml"
"""Name of the file with the deviations. It is in the directory of the settings."""


def settings(arguments: Sequence[str], path: Path, generation: str | None) -> Config:
    """Return the settings, with the claims and the generation of the command line.

    Args:
        arguments: Arguments of the command: claims, and perhaps a file.
        path: The file to use if the arguments hold none.
        generation: Generation to use in place of the file's.

    Raises:
        Usage: An argument or the file is wrong.
    """
    claims = [argument for argument in arguments if argument in CLAIMS]
    for argument in arguments:
        if argument in CLAIMS:
            continue
        if not (argument.endswith(".toml") or Path(argument).is_dir()):
            raise Usage(
                f"{argument!r} is neither a file with settings nor a claim; "
                f"expected conformance.toml or one of {', '.join(CLAIMS)}"
            )
        path = Path(argument)
    loaded = config.load(path)
    if missing := [claim for claim in claims if claim not in loaded.claims]:
        raise Usage(f"{loaded.path}: claims does not list {', '.join(missing)}")
    return replace(
        loaded,
        claims=claims or loaded.claims,
        unasked=[claim for claim in loaded.claims if claims and claim not in claims],
        generation=loaded.generation if generation is None else config.GENERATIONS[generation],
    )
