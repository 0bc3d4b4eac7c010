"""What several commands begin with: the settings, the claims meant, the known deviations."""

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
"""What the file with the deviations is called; it is beside the settings."""


def settings(what: Sequence[str], path: Path, generation: str | None) -> Config:
    """Return the settings, with the claims and the generation that are meant.

    Args:
        what: Words of the command line: claims, and perhaps a file.
        path: The file, if none is among them.
        generation: Instead of the file's.

    Raises:
        Usage: One of them is wrong.
    """
    claims = [each for each in what if each in CLAIMS]
    for each in (each for each in what if each not in CLAIMS):
        if not (each.endswith(".toml") or Path(each).is_dir()):
            raise Usage(
                f"{each!r} is neither a file with the settings nor one of {', '.join(CLAIMS)}"
            )
        path = Path(each)
    found = config.load(path)
    if missing := [claim for claim in claims if claim not in found.claims]:
        raise Usage(f"{found.path}: {', '.join(missing)} is not among the claims there")
    return replace(
        found,
        claims=claims or found.claims,
        unasked=[claim for claim in found.claims if claims and claim not in claims],
        generation=found.generation if generation is None else config.GENERATIONS[generation],
    )
