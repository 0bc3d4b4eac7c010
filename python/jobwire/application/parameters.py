"""The parameters of a job's function, and their values in a payload."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import Parameter
from typing import Any, Optional, TypeVar

from jobwire.application.codecs import Codec, Unresolved, Untravelling, make_codec, resolve
from jobwire.errors import ConfigError, InvalidArgument, InvalidJob
from jobwire.protocol.arguments import show

__all__ = ["Parameters"]

T = TypeVar("T")


class Parameters:
    """Turns the arguments of a call into the list of a payload, and back for the function.

    Annotations decide. A parameter without one, or with a type that JSON has, gets the value of the
    payload unchanged. Other types have a codec.

    Args:
        name: Wire class, for errors.
        function: The function of the job.
        explain: True to refuse a value whose annotation cannot be resolved with an error that says
            so. Otherwise the client decides about that value.

    Raises:
        ConfigError: A payload cannot have all arguments that the function needs.
    """

    def __init__(self, name: str, function: Callable[..., Any], *, explain: bool = True) -> None:
        self._name = name
        self._function = inspect.unwrap(function)
        self._explain = explain
        self._signature = inspect.signature(function)
        self._counts = _check_signature(name, self._signature)
        self._has_bare = explain and any(
            parameter.annotation is Parameter.empty and parameter.kind not in _BY_NAME
            for parameter in self._signature.parameters.values()
        )
        # None until all annotations are resolved: they may name types that are defined later.
        self._codecs: list[_Typed] | None = self._compile(final=False)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call as the list for the payload, which may be `args` itself.

        Raises:
            TypeError: They do not match the parameters of the function.
            InvalidJob: A value does not fit the annotation of its parameter, or needs one.
        """
        if not kwargs and len(args) in self._counts:
            # The usual case. Binding would take longer than all other work.
            values = args if type(args) is list else list(args)
        else:
            values = self._bind(args, kwargs)
        if self._has_bare and not _JSON_TYPES.issuperset(map(type, values)):
            self._check_bare(values)
        codecs = self._codecs
        if codecs is None:
            codecs = self._resolved()
        return self._encoded(values, codecs) if codecs else values

    def bind_around(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], gap: object
    ) -> tuple[list[Any], tuple[int, ...]]:
        """Return the list for the payload with None for each argument that is `gap`.

        Returns:
            The list, and the positions of these arguments.

        Raises:
            TypeError, InvalidJob: See `bind`.
        """
        values = self._bind(args, kwargs)
        gaps = tuple(index for index, value in enumerate(values) if value is gap)
        for index in gaps:
            values[index] = None
        if self._has_bare:
            self._check_bare(values)
        return self._encoded(values, self._resolved(), gaps), gaps

    def positions(self, names: Sequence[str | int], option: str) -> tuple[int, ...]:
        """Return the positions of parameters in the list of a payload.

        Args:
            names: Names, or positions, which stay as they are.
            option: The option that has them, for the error.

        Raises:
            ConfigError: The function has no such parameter.
        """
        known = [
            parameter.name
            for parameter in self._signature.parameters.values()
            if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        ]
        for name in names:
            if isinstance(name, str) and name not in known:
                raise ConfigError(
                    f"job {self._name!r}: {option} by {name!r} is not a parameter of the function; "
                    f"known: {', '.join(known) or 'none'}"
                )
        return tuple(known.index(name) if isinstance(name, str) else name for name in names)

    def encode(self, values: Sequence[Any]) -> list[Any]:
        """Return the list for the payload of positional arguments. Their number is not checked.

        Raises:
            InvalidJob: A value does not fit the annotation of its parameter.
        """
        return self._encoded(values, self._resolved())

    def decode(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments for the function from those of a payload.

        Raises:
            InvalidArgument: A value does not fit the annotation of its parameter.
        """
        return self._decoded(values, self._resolved())

    def check(self, values: Sequence[Any]) -> None:
        """Compare JSON values that a person typed with all annotations, also with those of JSON.

        A caller in Python has a type checker for them, so that a push does not look.

        Raises:
            InvalidArgument: A value does not fit the annotation of its parameter.
        """
        names = getattr(self._function, "__globals__", {})
        codecs: list[_Typed] = []
        for index, parameter in enumerate(self._signature.parameters.values()):
            if parameter.annotation is Parameter.empty or parameter.kind in _BY_NAME:
                continue
            with suppress(NameError):
                kind = resolve(parameter.annotation, names)
                if parameter.default is None:
                    kind = Optional[kind]  # noqa: UP045 - not every value of it has "|"
                codecs.append(_Typed(index, parameter, Codec(kind)))
        with suppress(TypeError):  # of a type that has no form in JSON, of which the job warns
            self._decoded(values, codecs)

    def _decoded(self, values: Sequence[Any], codecs: list[_Typed]) -> Sequence[Any]:
        if not codecs:
            return values
        decoded = list(values)
        for index, typed in _positions(codecs, len(decoded)):
            try:
                decoded[index] = typed.codec.decode(decoded[index])
            except ValueError as error:
                problem = typed.problem(decoded[index], error)
                raise InvalidArgument(f"{self._name}: args[{index}]: {problem}") from None
        return decoded

    def receiver(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function that calls `function` with the arguments of a payload, decoded.

        It is `function` itself if there is nothing to decode.
        """
        if not self._resolved():
            return function
        return lambda *values: function(*self.decode(values))

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}: {error}") from None
        if kwargs:
            last = list(bound.arguments)[-1]
            bound.apply_defaults()  # defaults fill gaps before a keyword argument
            while list(bound.arguments)[-1] != last:
                bound.arguments.popitem()  # the function itself knows the others
        if bound.kwargs:
            names = ", ".join(bound.kwargs)
            raise TypeError(
                f"{self._name}: {names} cannot be passed; a job has a list of arguments"
            )
        return list(bound.args)

    def _check_bare(self, values: Sequence[Any]) -> None:
        """Refuse a value for a parameter without annotation if the parameter is the problem.

        The client refuses other values.
        """
        parameters = [
            parameter
            for parameter in self._signature.parameters.values()
            if parameter.kind not in _BY_NAME
        ]
        for index, value in enumerate(values):
            parameter = parameters[min(index, len(parameters) - 1)]  # the last one may be `*args`
            if parameter.annotation is not Parameter.empty or type(value) in _JSON_TYPES:
                continue
            if advice := _advice(parameter, value):
                problem = f"{show(value)} is {type(value).__name__}, for which JSON has no type"
                raise self._refused(index, f"{problem}; {advice}")

    def _refused(self, index: int, problem: str) -> InvalidJob:
        refused = InvalidJob("PUSH-5", f"args[{index}]", problem)
        refused.job_class = self._name
        return refused

    def _encoded(
        self, given: Sequence[Any], codecs: list[_Typed], gaps: Sequence[int] = ()
    ) -> list[Any]:
        values = list(given)
        for index, typed in _positions(codecs, len(values)):
            if index in gaps:
                continue
            try:
                values[index] = typed.codec.encode(values[index])
            except ValueError as error:
                raise self._refused(index, typed.problem(values[index], error)) from None
        return values

    def _resolved(self) -> list[_Typed]:
        if self._codecs is None:
            self._codecs = self._compile(final=True)
            assert self._codecs is not None
        return self._codecs

    def _compile(self, *, final: bool) -> list[_Typed] | None:
        """Return the parameters that have a codec; None if a type is not defined yet.

        If `final`, a type that is not defined counts as missing for ever.
        """
        names = getattr(self._function, "__globals__", {})
        codecs: list[_Typed] = []
        problems: list[tuple[Parameter, Untravelling]] = []
        for index, parameter in enumerate(self._signature.parameters.values()):
            if parameter.annotation is Parameter.empty or parameter.kind in _BY_NAME:
                continue
            codec: Codec | None = None
            try:
                kind = resolve(parameter.annotation, names)
                if parameter.default is None:
                    kind = Optional[kind]  # noqa: UP045 - not every value of it has "|"
                codec = make_codec(kind)
            except NameError as error:
                if not final:
                    return None
                if self._explain:
                    codec = Unresolved(str(error))
            except Untravelling as error:
                problems.append((parameter, error))
            if codec is not None:
                codecs.append(_Typed(index, parameter, codec))
        for parameter, problem in problems:
            self._warn(parameter, problem)
        return codecs

    def _warn(self, parameter: Parameter, problem: Untravelling) -> None:
        """Warn of a required parameter if no value of its type can be enqueued."""
        if parameter.default is not Parameter.empty or parameter.kind is Parameter.VAR_POSITIONAL:
            return
        code = getattr(self._function, "__code__", None)
        warnings.warn_explicit(
            f"job {self._name!r}: values of parameter {_shown(parameter)} cannot travel in a "
            f"payload: {problem}; pass an id and look the object up in the job, or annotate the "
            "JSON type that you pass",
            UserWarning,
            filename=getattr(code, "co_filename", "?"),
            lineno=getattr(code, "co_firstlineno", 0),
            module=self._function.__module__,
        )


_BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
_JSON_TYPES: frozenset[type] = frozenset([str, int, float, bool, type(None), list, dict])


class _Typed:
    """A parameter with a codec, at its place in the list of arguments."""

    __slots__ = ("codec", "index", "parameter")

    def __init__(self, index: int, parameter: Parameter, codec: Codec) -> None:
        self.index = index
        self.parameter = parameter
        self.codec = codec

    def problem(self, value: object, error: ValueError) -> str:
        return f"{show(value)} does not fit parameter {_shown(self.parameter)}: {error}"


def _positions(codecs: list[_Typed], count: int) -> Iterator[tuple[int, _Typed]]:
    """Yield the indexes of `count` arguments that have a codec."""
    for typed in codecs:
        if typed.parameter.kind is Parameter.VAR_POSITIONAL:
            yield from ((index, typed) for index in range(typed.index, count))
        elif typed.index < count:
            yield typed.index, typed


def _shown(parameter: Parameter) -> str:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return f"'{parameter.name}: {text}'"


def _advice(parameter: Parameter, value: object) -> str:
    """Return how to pass a value to a parameter without annotation; "" if none helps."""
    kind = type(value)
    try:
        codec = make_codec(kind)
        if codec is None:
            return ""
        codec.encode(value)
    except Untravelling:
        if isinstance(value, tuple(_JSON_TYPES)):
            return ""  # of a subclass, such as a number of NumPy
        return "pass its id and load it in the job"
    except (NameError, ValueError):
        return ""
    return (
        f"annotate the parameter ('{parameter.name}: {kind.__name__}'), "
        "or send str, int, float, bool, None, list or dict"
    )


def _check_signature(name: str, signature: inspect.Signature) -> range:
    """Return the numbers of positional arguments that certainly match, so need no binding."""
    least = most = 0
    for parameter in signature.parameters.values():
        required = parameter.default is Parameter.empty
        if parameter.kind is Parameter.KEYWORD_ONLY and required:
            raise ConfigError(
                f"job {name!r}: parameter {parameter.name!r} is keyword-only, but a job's "
                "arguments are a list; make it positional or give it a default"
            )
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            least += required
    return range(least, most + 1)
