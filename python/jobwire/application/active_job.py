"""Job types of Active Job: jobs of Rails that run in Python, or that Python enqueues for Rails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from jobwire.application.active_values import Keywords, dump_call, load, wrap_call
from jobwire.application.clients import Clients
from jobwire.application.jobtype import JobType, P, R
from jobwire.application.parameters import Parameters
from jobwire.errors import InvalidArgument
from jobwire.protocol import active_job
from jobwire.protocol.arguments import show

__all__ = ["ActiveJobType"]

T = TypeVar("T")


class ActiveJobParameters(Parameters):
    """The parameters of a function that runs an Active Job. Marks decide, not annotations."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        # Nothing of the base: the arguments have their types, and may be keyword arguments.
        self._name = name
        self._signature = inspect.signature(function)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call as Active Job serializes them.

        Raises:
            TypeError: They do not match the parameters of the function.
            InvalidJob: Active Job has no form for a value.
        """
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}: {error}") from None
        return dump_call(args, kwargs)

    def encode(self, values: Sequence[Any]) -> list[Any]:
        """Return positional arguments as Active Job serializes them."""
        return dump_call(values)

    def decode(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return arguments from the form that Active Job gave them. [X-AJ-2]

        Raises:
            InvalidArgument: A mark has a value that it cannot have. [X-AJ-5]
        """
        loaded = []
        for index, value in enumerate(values):
            try:
                loaded.append(load(value))
            except ValueError as error:
                raise InvalidArgument(f"{self._name}: arguments[{index}]: {error}") from None
        return loaded

    def check(self, values: Sequence[Any]) -> None:
        """Accept all values: the marks have their types."""

    def receiver(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function that calls `function` for the argument of a payload. [X-AJ-3]"""

        def receive(described: dict[str, Any]) -> T:
            arguments = described.get("arguments")
            if not isinstance(arguments, list):
                raise InvalidArgument(f"{self._name}: arguments {show(arguments)} is not an array")
            args = list(self.decode(arguments))
            kwargs = args.pop() if args and isinstance(args[-1], Keywords) else {}
            return function(*args, **kwargs)

        return receive


class ActiveJobType(JobType[P, R]):
    """A job type whose payloads are those of Active Job. Made by `App.active_job`."""

    active_job = True

    def __init__(
        self, app: Clients, name: str, function: Callable[P, R], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(app, name, function, *args, **kwargs)
        self.wire_class = active_job.WRAPPER
        self.fields = {"wrapped": name}

    def _parameters(self) -> Parameters:
        return ActiveJobParameters(self.name, self.function)

    def _bind_around(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], tuple[int, ...]]:
        return self._bind(args, kwargs), ()  # its one argument has all the others inside

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        arguments = self.parameters.bind(args, kwargs)
        return [wrap_call(self.name, arguments, queue=self.defaults.get("queue"))]
