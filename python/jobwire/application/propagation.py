"""Context variables that travel in the payload of a job, from Python or from Rails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jobwire.application.active_values import load
from jobwire.errors import ConfigError, InvalidArgument
from jobwire.protocol.arguments import show
from jobwire.protocol.normalize import JobFields
from jobwire.protocol.payload import Job

__all__ = ["CurrentAttributes", "Propagation"]


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
        values = self._values(job.get(self._field))
        tokens = [
            (var, var.set(values[name])) for name, var in self._variables.items() if name in values
        ]
        try:
            yield
        finally:
            for var, token in reversed(tokens):
                var.reset(token)

    def _values(self, stored: object) -> Mapping[str, Any]:
        return stored if isinstance(stored, dict) else {}


class CurrentAttributes(Propagation):
    """Restores context variables from the current attributes of Rails; it writes nothing.

    The field is an object up to Sidekiq 7, with plain JSON values. Sidekiq 8 writes an array of
    pairs, in the encoding of Active Job's arguments. [PAY-13]
    """

    def _values(self, stored: object) -> Mapping[str, Any]:
        if not isinstance(stored, list):
            return super()._values(stored)
        try:
            return {name: value for name, value in load(stored) if isinstance(name, str)}
        except (TypeError, ValueError) as error:
            # The job must not run without its tenant or user.
            raise InvalidArgument(
                f"field {self._field}: {show(stored)} are not pairs of attribute and value "
                f"({error}); look at the payload, and delete the job if nothing can read it"
            ) from None
