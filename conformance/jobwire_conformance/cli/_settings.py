"""The settings of a command: the file, narrowed to the claims of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from jobwire_conformance import config
from jobwire_conformance.config import Config, Generation, expanded
from jobwire_conformance.data import CLAIMS, claims_of
from jobwire_conformance.errors import Usage

__all__ = ["DEVIATIONS", "for_generation", "settings"]

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
    claims = expanded(argument for argument in arguments if argument in CLAIMS)
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
    made = for_generation(loaded, generation)
    return replace(
        made,
        claims=[claim for claim in claims or made.claims if claim in made.claims],
        unasked=[claim for claim in made.claims if claims and claim not in claims],
    )


def for_generation(loaded: Config, generation: str | None) -> Config:
    """Return the settings for another generation, without claims that it does not have."""
    if generation is None:
        return loaded
    claims = [claim for claim in loaded.claims if claim in claims_of(generation)]
    return replace(loaded, claims=claims, generation=cast(Generation, generation))
