"""Context variables that travel in the payload of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jobwire.errors import ConfigError
from jobwire.protocol.normalize import JobFields
from jobwire.protocol.payload import Job

__all__ = ["Propagation"]


class Propagation:
    """Writes context variables to a payload field, and restores them from it.

    Args:
        field: The payload field.
        variables: Name in the payload to variable.
    """

    def __init__(self, field: str, variables: Mapping[str, ContextVar[Any]]) -> None:
        if not variables:
            raise ConfigError("propagate: name at least one variable, like tenant=current_tenant")
        self._field = field
        self._variables = dict(variables)

    def attach(
        self, item: JobFields, call_next: Callable[[], JobFields | None]
    ) -> JobFields | None:
        """Put the current values into the item; this is client middleware."""
        missing = object()
        values = {name: var.get(missing) for name, var in self._variables.items()}
        if present := {name: value for name, value in values.items() if value is not missing}:
            item[self._field] = present
        return call_next()

    @contextmanager
    def restore(self, job: Job) -> Iterator[None]:
        """Set the variables to the values that they had when the job was enqueued."""
        values = job.get(self._field)
        tokens = [
            (var, var.set(values[name]))
            for name, var in self._variables.items()
            if isinstance(values, dict) and name in values
        ]
        try:
            yield
        finally:
            for var, token in reversed(tokens):
                var.reset(token)
