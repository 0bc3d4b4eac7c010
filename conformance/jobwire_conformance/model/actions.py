"""What can be done to an implementation, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Act", "Impossible"]


class Impossible(Exception):
    """An act makes no sense as things are: a gate is opened that nobody waits at."""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do.

    Attributes:
        verb: A method of `Model`.
        given: Its arguments, JSON values.
    """

    verb: str
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A text that equal acts have in common, and others not: -0.0 is not 0.0."""
        return json.dumps([self.verb, self.given], sort_keys=True)
