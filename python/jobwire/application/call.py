"""The values of one push in an object: the arguments of `Client.push`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """A job to push.

    Attributes:
        class_name: Wire class.
        args: Arguments of the payload.
        options: As in `Options`.
        fields: More payload fields.
        on_commit: False if the job is written at once even inside a database transaction.
        takes: Positions of arguments that get the result of the job before, in a chain. [X-FLOW-2]
        members: For a group, its jobs; None for a job. [X-FLOW-8]
    """

    class_name: str
    args: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] | None = None
    on_commit: bool = True
    takes: tuple[int, ...] = ()
    members: tuple[Call, ...] | None = None
