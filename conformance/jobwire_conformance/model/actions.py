"""The actions of an example, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Action", "Impossible"]


class Impossible(Exception):
    """An action is not possible in the current state, like the opening of a gate without a job."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action.

    Attributes:
        verb: Name of a method of `Model`, without the underscore.
        given: Arguments of the method, JSON values.
    """

    verb: str
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A text that is equal for equal actions only. -0.0 and 0.0 differ."""
        return json.dumps([self.verb, self.given], sort_keys=True)
