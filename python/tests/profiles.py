"""Number of examples of the property tests: few in the gate, all in `.ci/release-check random`.

The profile `quick` draws the same examples every time, so that a checkout gets the same result on
every machine. The profile `full` draws new ones, and is the default of a plain `pytest`.
"""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples", "register"]

FULL = 100
QUICK = 20


def register() -> None:
    """Register both profiles and load `full`; `--hypothesis-profile quick` loads the other."""
    # A busy machine sometimes makes an example slow; that is not a fault, so no deadline.
    settings.register_profile("full", deadline=None, max_examples=FULL)
    settings.register_profile(
        "quick", deadline=None, max_examples=QUICK, derandomize=True, database=None
    )
    settings.load_profile("full")


def examples(count: int) -> int:
    """Return the number of examples if `full` tries `count`; at least 5."""
    return max(5, count * settings().max_examples // FULL)
